// Sarama drives the Go client of that name through what the tests of the faults suite and of tests/programs ask for.
//
//	sarama [-version V] outlive <bootstrap> <topic> <target> <group> <partitions>
//	sarama [-version V] load    <bootstrap> <topic> <codec>...
//	sarama [-version V] read    <bootstrap> <topic> <count>
//	sarama [-version V] member  <bootstrap> <topic> <group> <name>
//	sarama [-version V] copy    <bootstrap> <topic> <target> <group> <name>
//	sarama [-version V] admin   <bootstrap> <topic> <group>
//
// V is the version of the brokers for which the client takes them. What each prints stands beside it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const patience = 1000 // attempts, which are 100 ms apart

// protocol is the version of the brokers for which the client takes them.
var protocol = sarama.MaxVersion

func main() {
	verbs := map[string]func(bootstrap []string, arguments []string){
		"outlive": outlive, "load": load, "read": read, "member": join, "copy": copyForEver, "admin": administer,
	}
	version := flag.String("version", protocol.String(), "that of the brokers, as the client takes them")
	flag.Parse()
	if flag.NArg() < 4 || verbs[flag.Arg(0)] == nil {
		fmt.Fprintln(os.Stderr, "usage: sarama [-version V] outlive|load|read|member|copy|admin <bootstrap> <topic> ...")
		os.Exit(2)
	}
	protocol = must(sarama.ParseKafkaVersion(*version))
	verbs[flag.Arg(0)](strings.Split(flag.Arg(1), ","), flag.Args()[2:])
}

// settings are those of every client here.
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = protocol
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
