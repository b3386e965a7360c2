package main

// This file plays a page that says how each promise can be broken.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A row of the page's table: a promise, the command that shows that it holds, the change that breaks it, and the title
// of the spec that fails then, after the command that runs it where that is another one.
var row = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)`.* \\| `([^`]+)`: `([^`]+)` → `([^`]+)` \\| (?:`([^`]+)`: )?\"([^\"]+)\" \\|$")

// playPage runs each row's command as it is, which must succeed, and with the change, where the title must be among what
// it says. Only rows whose promise contains the filter are played.
func playPage(page, filter string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(row.FindAllStringSubmatch(string(text), -1), func(r []string) bool { return !strings.Contains(r[1], filter) })
	if len(rows) == 0 {
		return fmt.Errorf("%s has no row that can be played", page)
	}
	var failures []error
	for _, r := range rows {
		began := time.Now()
		if output, err := shell(r[2], ""); err != nil {
			failures = append(failures, fmt.Errorf("%s: %s: %w\n%s", r[1], r[2], err, tail(output)))
			continue
		}
		took := time.Since(began).Round(time.Second)
		if err := playRow(r); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", r[1], err))
			continue
		}
		fmt.Printf("%-50s holds (%s), and breaks\n", r[1], took)
	}
	return errors.Join(failures...)
}

func playRow(r []string) error {
	file, old, changed, command, title := r[3], r[4], r[5], r[6], r[7]
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), old); n != 1 {
		return fmt.Errorf("%s stands %d times in %s, not once", old, n, file)
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := overlay(dir, file, []byte(strings.Replace(string(text), old, changed, 1)))
	if err != nil {
		return err
	}
	if command == "" {
		command = r[2]
	}
	output, err := shell(command, "GOFLAGS=-overlay="+overlay)
	if err == nil {
		return errors.New("nothing fails")
	}
	if !strings.Contains(output, title) {
		return fmt.Errorf("it fails, but not %q:\n%s", title, tail(output))
	}
	return nil
}

// shell runs a command for at most half an hour: a change can make a program wait for ever.
func shell(command, variable string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.WaitDelay = 10 * time.Second                                // the command's own children hold its output open
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "ARGS=", variable) // those of make check-us are its own
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// tail returns the end of a text.
func tail(text string) string { return text[max(0, len(text)-2000):] }
