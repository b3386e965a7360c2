package main

// This file turns errors of the go command into messages with a remedy.

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// isProgress reports whether a line is progress output of "go build -v", a package path or a download, and no
// complaint.
func isProgress(line string) bool {
	return strings.HasPrefix(line, "go: downloading ") || line != "" && !strings.ContainsAny(line, " \t")
}

const instead = ", or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd"

// remedies are tried in this order, because a full disk also breaks downloads.
var remedies = []struct {
	signs  []string
	remedy string
}{
	{
		[]string{"no space left on device", "disk quota exceeded"},
		"make room: the first build needs " + room + " in the folders that \"go env GOCACHE GOMODCACHE\", TMPDIR and -dir name" + instead,
	},
	{
		[]string{"checksum mismatch", "SECURITY ERROR"},
		"use another Go module proxy (\"go env GOPROXY\"): this one serves other sources than go.sum records" + instead,
	},
	{
		[]string{
			"dial tcp", "no such host", "proxyconnect", "connection refused", "i/o timeout", "TLS handshake",
			"module lookup disabled", "network is unreachable", "certificate signed by unknown authority",
			"410 Gone", "403 Forbidden", "502 Bad Gateway", "503 Service", "504 Gateway",
		},
		"check the network and \"go env GOPROXY\": the sources cannot be downloaded from a Go module proxy" + instead,
	},
	{
		[]string{"404 Not Found", "unknown revision"},
		"choose another release with -k8s (K8S= of make), or a Go module proxy that has the module named below " +
			"(\"go env GOPROXY\")" + instead,
	},
	{
		[]string{"requires go >=", "toolchain not available", "invalid go version"},
		"use the Go version that go.mod asks for, or set GOTOOLCHAIN=auto" + instead,
	},
	{
		[]string{"signal: killed", "cannot allocate memory", "out of memory"},
		"run it again with -p 1, which needs less memory (about 3 GB)" + instead,
	},
	{
		[]string{"permission denied", "read-only file system"},
		"make the folders that \"go env GOCACHE GOMODCACHE\", TMPDIR and -dir name writable" + instead,
	},
}

// explain puts the remedy in front of the go command's output.
func explain(goCommand, verb string, err error, complaints []string) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("install Go and put it on the PATH%s: %w", instead, err)
	}

	const most = 20
	if len(complaints) > most {
		complaints = complaints[len(complaints)-most:]
	}

	said := strings.TrimSpace(strings.Join(complaints, "\n"))

	remedy := "see what the go command says below" + instead

search:
	for _, r := range remedies {
		for _, sign := range r.signs {
			if strings.Contains(said, sign) || strings.Contains(err.Error(), sign) {
				remedy = r.remedy

				break search
			}
		}
	}

	return fmt.Errorf("%s: %s %s: %w\n%s", remedy, goCommand, verb, err, said)
}
