package podsecurity

// This file lists the peers.

import (
	"context"
	"os/exec"
)

// Peer is one implementation of the Pod Security Standard "restricted", for the pods of one namespace.
type Peer struct {
	Name   string
	Beyond string // what it does besides this job, in a sentence; empty if nothing

	// namespace is the namespace of its pods. It has the label peer with the same value. The caller creates it.
	namespace string
	labels    map[string]string // further labels of the namespace

	// setUp creates the objects that the peer needs, once for each cluster. It returns the program, which may not be
	// started yet, or nil if the API server itself does the work. The program is started several times with the same
	// arguments. It ends with an interrupt. Without setUp there is no webhook.
	setUp func(ctx context.Context, c *cluster, p *Peer) (program func(context.Context) *exec.Cmd, err error)
}

// group is a number of peers that are up together, beside none and ours.
type group struct {
	name  string
	peers func() []*Peer
}

func groups() []group {
	return []group{
		{"webhooks", func() []*Peer { return []*Peer{oursWhole(), controllerRuntime(), kubernetesWebhook()} }},
		{"cel", func() []*Peer { return []*Peer{kyvernoCEL(), gatekeeperCEL()} }},
		{"engines", func() []*Peer { return []*Peer{kyvernoPatterns(), gatekeeperRego()} }},
		{"policies", func() []*Peer { return []*Peer{policiesEach(), policiesOne()} }},
	}
}

// Groups are the names of the groups.
func Groups() (names []string) {
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}
