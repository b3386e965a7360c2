package main

// This file starts and uses the server process of child.go.

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// child is the process that serves all peers, as the parent sees it.
type child struct {
	hello
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startChild starts the server on the CPUs to which this process is currently pinned.
func startChild(args ...string) (*child, error) {
	return startProgram(nil, append([]string{"-child"}, args...)...)
}

// startProgram starts this program with other arguments and additional environment variables, and reads its hello.
func startProgram(environment []string, args ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(program, args...)}
	c.cmd.Env = append(os.Environ(), environment...)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.hello)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server's process did not start: %w", err), c.stop())
	}
	return c, nil
}

func (c *child) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// cpu returns the CPU time that the server has used. With collect, the server runs a garbage collection first.
func (c *child) cpu(collect bool) (time.Duration, error) {
	ask := "cpu\n"
	if collect {
		ask = "gc\n"
	}
	if _, err := io.WriteString(c.in, ask); err != nil {
		return 0, err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the server's process is gone: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(ns), err
}

// client uses HTTP/1.1, as the API server does for Services, or HTTP/2, as it does for loopback URLs.
func (c *child) client(h2 bool) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Bundle)
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: connections,
		Protocols:           new(http.Protocols),
		DisableCompression:  true,
	}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetHTTP2(h2)
	return &http.Client{Transport: transport}
}
