package main

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

// The paths on which the child serves. What is asked of a peer stands in the path.
func injectionPath(size, peer string) string { return "/injection/" + size + "/" + peer }
func stepPath(peer string, i int) string     { return fmt.Sprintf("/step/%s/%d", peer, i) }
func (h hello) at(path string) string        { return h.URL + path }

// chainLength is how many steps the API server is made to call for.
const chainLength = 10

// serveAsChild is the server's half of the measurements over TLS: all peers in one process, so that all have
// the same heap, certificate and HTTP server around them. It ends when its standard input does. Each
// line there asks for the CPU time used so far, after a garbage collection if it says so. With a kubeconfig, a
// Manager runs beside, which registers itself.
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
		// What a handler sees is "/", as in process.
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
