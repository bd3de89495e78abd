package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// progress is what the feeder and the copiers have come to. The programs of both clients are built with this file.
type progress struct {
	fed atomic.Bool

	lock         sync.Mutex
	acknowledged int
	failed       []string
	commits      map[string]int
	aborts       int
	renewals     int
	errors       map[string]int
	longest      map[string]float64
	doing        map[string]string
	since        map[string]time.Time
}

func newProgress() *progress {
	return &progress{
		failed: []string{}, commits: map[string]int{}, errors: map[string]int{},
		longest: map[string]float64{}, doing: map[string]string{}, since: map[string]time.Time{},
	}
}

func (p *progress) outcome(value string, err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if err == nil {
		p.acknowledged++
	} else {
		p.failed = append(p.failed, value+": "+err.Error())
	}
}

func (p *progress) met(err error) {
	if err == nil {
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.errors[err.Error()]++
}

func (p *progress) renewed(err error) {
	p.met(err)
	p.lock.Lock()
	defer p.lock.Unlock()
	p.renewals++
}

func (p *progress) ended(id string, committed bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if committed {
		p.commits[id]++
	} else {
		p.aborts++
	}
}

// during notes how long a call takes.
func (p *progress) during(id, what string, call func()) {
	p.lock.Lock()
	p.doing[id], p.since[id] = what, time.Now()
	p.lock.Unlock()
	call()
	p.lock.Lock()
	defer p.lock.Unlock()
	p.note(id)
	delete(p.doing, id)
}

func (p *progress) note(id string) {
	if what, busy := p.doing[id]; busy {
		p.longest[what] = max(p.longest[what], time.Since(p.since[id]).Seconds())
	}
}

func (p *progress) told() map[string]any {
	p.lock.Lock()
	defer p.lock.Unlock()
	for id := range p.doing {
		p.note(id)
	}
	return map[string]any{
		"fed": p.fed.Load(), "acknowledged": p.acknowledged, "failed": append([]string{}, p.failed...),
		"commits": copyOf(p.commits), "aborts": p.aborts, "renewals": p.renewals,
		"errors": copyOf(p.errors), "longest_s": copyOf(p.longest), "doing": copyOf(p.doing),
	}
}

func copyOf[K comparable, V any](found map[K]V) map[K]V {
	copied := map[K]V{}
	for key, value := range found {
		copied[key] = value
	}
	return copied
}
