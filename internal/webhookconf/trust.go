package webhookconf

import (
	"bytes"
	"slices"
	"strings"
)

// bundlesOf gives the different caBundles of all entries of the fingerprint.
func (k Kind[C, W]) bundlesOf(c C, fingerprint string) [][]byte {
	var none C
	if c == none {
		return nil
	}
	var bundles [][]byte
	k.trust(c.DeepCopy(), fingerprint, func(_ string, bundle []byte) []byte {
		if !slices.ContainsFunc(bundles, func(b []byte) bool { return bytes.Equal(b, bundle) }) {
			bundles = append(bundles, bundle)
		}
		return bundle
	})
	return bundles
}

// trust changes the caBundle of every entry of the fingerprint.
func (k Kind[C, W]) trust(c C, fingerprint string, change func(name string, bundle []byte) []byte) {
	webhooks := *k.webhooks(c)
	for i := range webhooks {
		if name, client := k.look(&webhooks[i]); strings.HasSuffix(name, WebhookName("", fingerprint)) {
			client.CABundle = change(name, client.CABundle)
		}
	}
}
