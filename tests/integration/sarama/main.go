// Sarama drives the Go client of that name through what the tests of the faults suite ask for.
//
//	sarama outlive <bootstrap> <topic> <target> <group> <partitions>
//
// It feeds a topic with numbers, through an idempotent producer, and copies it exactly once into another one, in a
// group of transactional members. When its standard input ends it feeds no more, tells when every number has its
// outcome, and goes on copying until it is killed. It prints how far it is as lines of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	copiers   = 2
	tellEvery = 200 * time.Millisecond
	patience  = 1000 // attempts, which are 100 ms apart
)

func main() {
	if len(os.Args) != 7 || os.Args[1] != "outlive" {
		fmt.Fprintln(os.Stderr, "usage: sarama outlive <bootstrap> <topic> <target> <group> <partitions>")
		os.Exit(2)
	}
	bootstrap, topic, target, group := strings.Split(os.Args[2], ","), os.Args[3], os.Args[4], os.Args[5]
	partitions := must(strconv.Atoi(os.Args[6]))
	progress := newProgress()
	for n := range copiers {
		one := &copier{bootstrap, topic, target, group, fmt.Sprintf("%s-%d", group, n), progress}
		go one.run()
	}
	go feed(bootstrap, topic, partitions, progress)
	printed := json.NewEncoder(os.Stdout)
	for {
		check(printed.Encode(progress.told()))
		time.Sleep(tellEvery)
	}
}

// settings are those of every client here.
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 10
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	return config
}

// writing adds what an idempotent producer has that outlives its brokers.
func writing(config *sarama.Config) *sarama.Config {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = patience
	config.Producer.Transaction.Retry.Max = patience
	config.Net.MaxOpenRequests = 1
	return config
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
