package main

// This file is the server process of the measurements over TLS.

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"time"
)

// hello is the first line that the child prints.
type hello struct {
	URL    string
	Bundle []byte
}

// These functions return the paths on which the child serves. A path names the peer and its task.
func injectionPath(size, peer string) string { return "/injection/" + size + "/" + peer }
func stepPath(peer string, i int) string     { return fmt.Sprintf("/step/%s/%d", peer, i) }
func (h hello) at(path string) string        { return h.URL + path }

// chainLength is the number of steps, and of calls if each step is a separate webhook.
const chainLength = 10

// serveAsChild is the server's part of the measurements over TLS. All peers are in one process, so that they share the
// same heap, certificate and HTTP server. It ends when its standard input ends. Each line there requests the CPU time
// used so far, after a garbage collection if the line is "gc". With a kubeconfig, it also runs a Manager, which
// registers itself.
func serveAsChild(kubeconfig string, in io.Reader, out io.Writer) (err error) {
	quiet()
	if kubeconfig != "" {
		stop, err := runManager(kubeconfig)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	mux, err := childMux()
	if err != nil {
		return err
	}
	certificate, bundle, err := servingCertificate()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	if err := json.NewEncoder(out).Encode(hello{"https://" + listener.Addr().String(), bundle}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if lines.Text() == "gc" {
			runtime.GC()
		}
		if _, err := fmt.Fprintln(out, processCPU().Nanoseconds()); err != nil {
			return err
		}
	}
	return server.Close()
}

func childMux() (*http.ServeMux, error) {
	mux := http.NewServeMux()
	add := func(path string, p peer, s spec) error {
		h, err := p.handler(s)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		// The handler sees the path "/", as in the in-process measurements.
		mux.Handle(path, http.StripPrefix(path[:len(path)-1], h))
		return nil
	}
	for _, size := range sizes {
		rev, err := loadReview(size)
		if err != nil {
			return nil, err
		}
		for _, p := range peers() {
			if err := add(injectionPath(size, p.name)+"/", p, spec{injection(), wanted, rev}); err != nil {
				return nil, err
			}
		}
	}
	for i, p := range converters() {
		for _, containers := range jobSizes {
			path := converterPath(i)
			if p.name == nameFloor {
				path += fmt.Sprint("/", containers)
			} else if containers != jobSizes[0] {
				continue
			}
			rev, err := conversionOf(newJob(containers))
			if err != nil {
				return nil, err
			}
			h, err := p.handler(spec{review: rev})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			mux.Handle(path+conversionPath, http.StripPrefix(path, h))
		}
	}
	steps := smallSteps(chainLength)
	for _, p := range peersNamed(nameOurs, nameDefaulter) {
		for i := range steps {
			if err := add(stepPath(p.name, i)+"/", p, spec{steps[i : i+1], wanted, nil}); err != nil {
				return nil, err
			}
		}
	}
	return mux, nil
}
