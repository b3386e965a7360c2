package main

// This file lists the peers.

import "net/http"

// spec is a peer's task: a webhook that runs steps on pods whose selectLabel has a value.
type spec struct {
	steps   []step
	selects string
	review  *review // the only review that will be sent, for peers with a canned answer
}

// peer is one way to write a mutating webhook.
type peer struct {
	name    string
	handler func(spec) (http.Handler, error)
}

// These are the names by which ratios are looked up.
const (
	nameOurs        = "ours"
	nameExtension   = "ours-Extension"
	nameByHand      = "ours-patch-by-hand"
	nameDefaulter   = "Defaulter"
	nameWebhook     = "cr-Webhook"
	nameKubewebhook = "kubewebhook"
	nameAgnhost     = "agnhost"
	nameFloor       = "floor"
)

// peers returns the peers in the order in which a slice of each is run. The pair that the bounds compare is adjacent.
func peers() []peer {
	return []peer{
		{nameExtension, oursExtension},
		{nameOurs, ours},
		{nameDefaulter, crDefaulter},
		{nameWebhook, crWebhook},
		{nameKubewebhook, kubewebhook},
		{nameAgnhost, agnhost},
		{nameFloor, floor},
		{nameByHand, oursByHand},
	}
}

func peersNamed(names ...string) []peer {
	var chosen []peer
	for _, p := range peers() {
		for _, n := range names {
			if p.name == n {
				chosen = append(chosen, p)
			}
		}
	}
	return chosen
}
