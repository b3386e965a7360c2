package world

// This file is lines of logs that repeat: a lasting state is told once a minute.

import (
	"fmt"
	"strings"
	"time"
)

const (
	// mostAlike is the number of equal lines of a process in a minute. Of what clients set off, a hundred of a kind are
	// logged.
	mostAlike = 220

	// mostTold is the same of states that last, of which each can have several reasons.
	mostTold = 12

	// mostOfClients is the same of calls that are refused, or of which a step fails, of one webhook and for one reason: ten are logged in
	// each minute of the program, and a change of the steps begins another.
	mostOfClients = 40
)

// lasting are words of lines about states that last.
var lasting = []string{
	withoutCertificate, "versions of this program cannot see each other", "waiting for the certificate Secret", "could not reconcile certificates and registration",
	"not ready: serving, but not registered", "cannot take the next step", "waiting for objects that this program does not create", "the paths of another version cannot be served",
}

// ofClients are words of lines about calls.
var ofClients = []string{"refused a request", "refused a conversion", "step failed"}

// alike counts a line of a log. The caller holds mu.
func (w *World) alike(who, text string, fields map[string]any) {
	most, key := mostAlike, who+": "+text+fmt.Sprint(fields)
	for _, words := range ofClients {
		if strings.Contains(text, words) {
			most, key = mostOfClients, fmt.Sprint(who, ": ", text, fields["webhook"], fields["customResourceDefinition"])
		}
	}
	for _, words := range lasting {
		if strings.Contains(text, words) {
			most, key = mostTold, who+": "+text
		}
	}
	of := rateOf(&w.watch.said, key)
	of.add(time.Now())
	if len(of.recent) > most {
		w.breaks("%s logs %d times in a minute: %s", who, len(of.recent), text)
	}
}
