package world

// This file is answers of API servers with an odd date.

import (
	"net/http"
	"time"
)

// trustedDates is how many requests a process has made at least before the first odd date: it knows the clock by then.
const trustedDates = 30

// dates has a part of the answers to a process carry an odd date, as where one API server of many has a wrong clock. No two of these
// agree, so they change nothing.
func (c *wire) dates(answer *http.Response) {
	if !c.w.plan.settled("clock") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.odd == nil {
		c.odd = c.w.stream("odd dates of "+c.host.name, 0)
	}
	if c.made.all < trustedDates || c.odd.IntN(6) > 0 {
		return
	}
	by := 2*time.Hour + time.Duration(c.odd.Int64N(int64(40*day)))
	if c.odd.IntN(2) == 0 {
		by = -by
	}
	answer.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
}
