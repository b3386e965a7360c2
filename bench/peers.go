package main

import "net/http"

// A spec is what a peer is asked to be: a webhook that runs steps on pods whose selectLabel has a value.
type spec struct {
	steps   []step
	selects string
	review  *review // the only review that will be asked about, for peers with a canned answer
}

// A peer is one way to write a mutating webhook.
type peer struct {
	name    string
	handler func(spec) (http.Handler, error)
}

// The names that ratios are looked up by.
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

// peers are listed in the order in which a slice of each is run, so that the pair which the bounds speak of
// stands side by side.
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
