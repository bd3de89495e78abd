// Franz drives franz-go, a Go client of its own making, through what the tests in test_franz_go.py ask for.
//
//	franz <scenario> <bootstrap> <topic> [argument ...]
//
// Each scenario prints what it saw as lines of JSON, or ends with status 1 and the error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var scenarios = map[string]func(context.Context, arguments){
	"records":       records,
	"group":         group,
	"admin":         administer,
	"load":          load,
	"outlive":       outlive,
	"secured":       secured,
	"stages":        stages,
	"accepted":      accepted,
	"share-offsets": shareOffsets,
}

type arguments struct {
	bootstrap []string
	topic     string
	rest      []string
}

func main() {
	if len(os.Args) < 4 || scenarios[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: franz records|group|admin|load|outlive|secured|stages|accepted|share-offsets <bootstrap> <topic> [argument ...]")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	given := arguments{strings.Split(os.Args[2], ","), os.Args[3], os.Args[4:]}
	scenarios[os.Args[1]](ctx, given)
}

func client(given arguments, options ...kgo.Opt) *kgo.Client {
	common := []kgo.Opt{
		kgo.SeedBrokers(given.bootstrap...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
	}
	return must(kgo.NewClient(append(common, options...)...))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

var printing sync.Mutex

func tell(value any) {
	printing.Lock()
	defer printing.Unlock()
	check(json.NewEncoder(os.Stdout).Encode(value))
}

// until polls a condition until it holds.
func until(ctx context.Context, what string, condition func() bool) {
	for !condition() {
		select {
		case <-ctx.Done():
			panic("not in time: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
