package diagnose

// This file classifies the reason of a failed call by the text of its error.

import (
	"crypto/x509"
	"errors"
	"strings"
)

// signs are parts of error messages, those of Go's libraries and of the API server. The first match counts.
var signs = []struct {
	text string
	code Code
}{
	{"no service port", PortMismatch},
	{"no endpoints available for service", NoReadyEndpoints},
	{"cannot route to service with ClusterIP", ServiceUnusable},
	{"unsupported service type", ServiceUnusable},
	{"unable to load root certificates", BundleUnreadable},
	{"certificate signed by unknown authority", UnknownAuthority},
	{"x509: certificate is valid for", NameMismatch},
	{"x509: certificate is not valid for", NameMismatch},
	{"x509: cannot validate certificate for", NameMismatch},
	{"x509: certificate relies on legacy Common Name", NameMismatch},
	{"certificate has expired or is not yet valid", Expired},
	{"server gave HTTP response to HTTPS client", NotTLS},
	{"does not look like a TLS handshake", NotTLS},
	{"remote error: tls: internal error", ConnectionBroken}, // a server without a certificate
	{"remote error: tls: unrecognized name", ConnectionBroken},
	{"remote error: tls:", CallerRefused},
	{"provide credentials", CallerRefused}, // HTTP 401
	{"No agent available", NoTunnel},
	{"proxy error from", NoTunnel},
	{"no such host", NoSuchHost},
	{"server misbehaving", NoSuchHost},
	{"no route to host", NoRoute},
	{"network is unreachable", NoRoute},
	{"connection refused", ConnectionRefused},
	{"i/o timeout", TimedOut},
	{"deadline exceeded", TimedOut},
	{"Client.Timeout", TimedOut},
	{"handshake timeout", TimedOut},
	{"connection reset by peer", ConnectionBroken},
	{"broken pipe", ConnectionBroken},
	{": EOF", ConnectionBroken},
	{"unexpected EOF", ConnectionBroken},
	{"http2: client conn", ConnectionBroken}, // lost, closed by force, or could not be established
	{"http2: no cached connection", ConnectionBroken},
	{"GOAWAY", ConnectionBroken},
	{"server closed idle connection", ConnectionBroken},
	{"use of closed network connection", ConnectionBroken},
	{"could not find the requested resource", BadAnswer}, // HTTP 404
	{"an error on the server", BadAnswer},                // HTTP 500
	{"unable to handle the request", BadAnswer},          // HTTP 503
	{"invalid webhook response", BadAnswer},
	{"expected webhook response", BadAnswer},
	{"expected response.uid", BadAnswer},
	{"couldn't get version/kind", BadAnswer},
	{"couldn't get resource from scheme", BadAnswer},
	{"invalid character", BadAnswer},
}

// classify returns the kind of fault for the reason of a failed call.
func classify(reason string) Code {
	if strings.Contains(reason, `service "`) && strings.HasSuffix(strings.TrimSpace(reason), `not found`) {
		return ServiceMissing
	}
	for _, s := range signs {
		if strings.Contains(reason, s.text) {
			return s.code
		}
	}
	return Unexplained
}

// codeOf is classify for an error of this process, whose type is more precise than its text.
func codeOf(err error) Code {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return Expired
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return UnknownAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return NameMismatch
	}
	return classify(err.Error())
}

// failure is an API server's error about a webhook.
type failure struct {
	webhook string
	denied  bool   // the webhook was called and denied the request; otherwise the call failed
	reason  string // the API server's message about the call
}

// parseFailure extracts the webhook and the reason from an API server's error.
func parseFailure(text string) (failure, bool) {
	for _, form := range []struct {
		before string
		after  string
		denied bool
	}{
		{`failed calling webhook "`, `": `, false},
		{`admission webhook "`, `" denied the request`, true},
	} {
		_, rest, found := strings.Cut(text, form.before)
		if !found {
			continue
		}
		name, reason, found := strings.Cut(rest, form.after)
		if found {
			return failure{webhook: name, denied: form.denied, reason: strings.TrimPrefix(reason, ": ")}, true
		}
	}
	return failure{}, false
}
