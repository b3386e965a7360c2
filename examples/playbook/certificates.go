package main

// This file selects the source of the serving certificates.

import (
	"fmt"
	"os"
	"strings"

	"code.cloudfoundry.org/eirinix"
)

// certificates returns the source of the serving certificates that the flags select. nil means that the Manager issues
// them itself. trust is a file with the CA of a signer, because the certificates API does not provide the CA.
func certificates(from, trust string) (eirinix.CertificateSource, error) {
	kind, name, _ := strings.Cut(from, ":")
	switch kind {
	case "":
		return nil, nil
	case "files": // tls.crt, tls.key and ca.crt, as in a mounted Secret
		return eirinix.FromFiles(name, "", "", ""), nil
	case "secret": // a Secret that cert-manager maintains, next to the webhook's own objects
		return eirinix.FromSecret("", name), nil
	case "csr": // a signer of the cluster whose requests have to be approved
		ca, err := os.ReadFile(trust)
		if err != nil {
			return nil, fmt.Errorf("-trust names no file with the CA of signer %q: %w", name, err)
		}
		return eirinix.FromCSR(name, eirinix.SignerOptions{TrustPEM: ca}), nil
	}
	return nil, fmt.Errorf("-certificates is %q; give files:<folder>, secret:<name> or csr:<signer>, or leave it out", from)
}
