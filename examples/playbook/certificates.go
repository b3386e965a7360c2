package main

import (
	"fmt"
	"os"
	"strings"

	"code.cloudfoundry.org/eirinix"
)

// certificates tells where serving certificates come from: nil, and so from the Manager itself, unless flags name
// another place. trust is a file with the CA of a signer, whom the certificates API does not ask for it.
func certificates(from, trust string) (eirinix.CertificateSource, error) {
	kind, name, _ := strings.Cut(from, ":")
	switch kind {
	case "":
		return nil, nil
	case "files": // tls.crt, tls.key and ca.crt, as a mounted Secret has them
		return eirinix.FromFiles(name, "", "", ""), nil
	case "secret": // one that cert-manager keeps, beside the webhook's own objects
		return eirinix.FromSecret("", name), nil
	case "csr": // a signer of the cluster, whose answer somebody approves
		ca, err := os.ReadFile(trust)
		if err != nil {
			return nil, fmt.Errorf("-trust names no file with the CA of signer %q: %w", name, err)
		}
		return eirinix.FromCSR(name, eirinix.SignerOptions{TrustPEM: ca}), nil
	}
	return nil, fmt.Errorf("-certificates is %q; give files:<folder>, secret:<name> or csr:<signer>, or leave it out", from)
}
