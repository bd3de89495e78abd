package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	copiers   = 2
	tellEvery = 200 * time.Millisecond
)

// outlive feeds a topic with numbers, through an idempotent producer, and copies it exactly once into another one, in a
// group of transactional members. When its standard input ends it feeds no more, tells when every number has its
// outcome, and goes on copying until it is killed. It prints how far it is as lines of JSON.
func outlive(bootstrap []string, arguments []string) {
	topic, target, group := arguments[0], arguments[1], arguments[2]
	partitions := must(strconv.Atoi(arguments[3]))
	progress := newProgress()
	for n := range copiers {
		one := &copier{bootstrap, topic, target, group, fmt.Sprintf("%s-%d", group, n), progress}
		go one.run()
	}
	go feed(bootstrap, topic, partitions, progress)
	tellForEver(progress)
}

// copyForEver is one member of such a group; it prints the same.
func copyForEver(bootstrap []string, arguments []string) {
	progress := newProgress()
	one := &copier{bootstrap, arguments[0], arguments[1], arguments[2], arguments[3], progress}
	go one.run()
	tellForEver(progress)
}

func tellForEver(progress *progress) {
	printed := json.NewEncoder(os.Stdout)
	for {
		check(printed.Encode(progress.told()))
		time.Sleep(tellEvery)
	}
}
