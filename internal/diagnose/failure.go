package diagnose

// This file turns a failed call into a finding with a remedy.

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"code.cloudfoundry.org/eirinix/diagnosis"
)

// signs are parts of error messages, those of Go's libraries and of the API server. The first match counts.
var signs = []struct {
	text string
	code diagnosis.Code
}{
	{"no service port", diagnosis.PortMismatch},
	{"no endpoints available for service", diagnosis.NoReadyEndpoints},
	{"cannot route to service with ClusterIP", diagnosis.ServiceUnusable},
	{"unsupported service type", diagnosis.ServiceUnusable},
	{"unable to load root certificates", diagnosis.BundleUnreadable},
	{"certificate signed by unknown authority", diagnosis.UnknownAuthority},
	{"x509: certificate is valid for", diagnosis.NameMismatch},
	{"x509: certificate is not valid for", diagnosis.NameMismatch},
	{"x509: cannot validate certificate for", diagnosis.NameMismatch},
	{"x509: certificate relies on legacy Common Name", diagnosis.NameMismatch},
	{"certificate has expired or is not yet valid", diagnosis.Expired},
	{"server gave HTTP response to HTTPS client", diagnosis.NotTLS},
	{"does not look like a TLS handshake", diagnosis.NotTLS},
	{"remote error: tls: internal error", diagnosis.ConnectionBroken}, // a server without a certificate
	{"remote error: tls: unrecognized name", diagnosis.ConnectionBroken},
	{"remote error: tls:", diagnosis.CallerRefused},
	{"provide credentials", diagnosis.CallerRefused}, // HTTP 401
	{"No agent available", diagnosis.NoTunnel},
	{"proxy error from", diagnosis.NoTunnel},
	{"no such host", diagnosis.NoSuchHost},
	{"server misbehaving", diagnosis.NoSuchHost},
	{"no route to host", diagnosis.NoRoute},
	{"network is unreachable", diagnosis.NoRoute},
	{"connection refused", diagnosis.ConnectionRefused},
	{"i/o timeout", diagnosis.TimedOut},
	{"deadline exceeded", diagnosis.TimedOut},
	{"Client.Timeout", diagnosis.TimedOut},
	{"handshake timeout", diagnosis.TimedOut},
	{"connection reset by peer", diagnosis.ConnectionBroken},
	{"broken pipe", diagnosis.ConnectionBroken},
	{": EOF", diagnosis.ConnectionBroken},
	{"unexpected EOF", diagnosis.ConnectionBroken},
	{"http2: client conn", diagnosis.ConnectionBroken}, // lost, closed by force, or could not be established
	{"http2: no cached connection", diagnosis.ConnectionBroken},
	{"GOAWAY", diagnosis.ConnectionBroken},
	{"server closed idle connection", diagnosis.ConnectionBroken},
	{"use of closed network connection", diagnosis.ConnectionBroken},
	{"could not find the requested resource", diagnosis.BadAnswer}, // HTTP 404
	{"an error on the server", diagnosis.BadAnswer},                // HTTP 500
	{"unable to handle the request", diagnosis.BadAnswer},          // HTTP 503
	{"invalid webhook response", diagnosis.BadAnswer},
	{"expected webhook response", diagnosis.BadAnswer},
	{"expected response.uid", diagnosis.BadAnswer},
	{"couldn't get version/kind", diagnosis.BadAnswer},
	{"couldn't get resource from scheme", diagnosis.BadAnswer},
	{"invalid character", diagnosis.BadAnswer},
}

// classify returns the kind of fault for the reason of a failed call.
func classify(reason string) diagnosis.Code {
	if strings.Contains(reason, `service "`) && strings.HasSuffix(strings.TrimSpace(reason), `not found`) {
		return diagnosis.ServiceMissing
	}
	for _, s := range signs {
		if strings.Contains(reason, s.text) {
			return s.code
		}
	}
	return diagnosis.Unexplained
}

// codeOf is classify for an error of this process, whose type is more precise than its text.
func codeOf(err error) diagnosis.Code {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return diagnosis.Expired
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return diagnosis.UnknownAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return diagnosis.NameMismatch
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

// explain turns the API server's error about the canary into a finding.
func (d *diagnostic) explain(ctx context.Context, text string) diagnosis.Finding {
	f, ok := parseFailure(text)
	canary := d.Options.WebhookName(CanaryName)
	switch {
	case !ok:
		return diagnosis.Finding{
			Code: diagnosis.Unexplained, Severity: diagnosis.Warning, Object: d.Options.Target.String(),
			Message: "the API server refuses the canary before it calls this program", Evidence: text,
			Remedy: "find the policy or quota that refuses ConfigMaps in Namespace " + d.Canary.Namespace,
		}
	case f.webhook != canary:
		return d.shadowedCanary(ctx, f, text)
	case f.denied: // not by this program, which never denies the canary
		return diagnosis.Finding{
			Code: diagnosis.BadAnswer, Severity: diagnosis.Problem, Object: d.Options.Target.String(),
			Message: fmt.Sprintf("something else than this program answers at %s", d.Options.Target),
			Remedy:  d.whoAnswers(), Evidence: text,
		}
	}
	return d.brokenPath(ctx, classify(f.reason), f.reason)
}

// brokenPath returns a finding about the path to this program. For a broken connection it first determines the reason.
func (d *diagnostic) brokenPath(ctx context.Context, code diagnosis.Code, reason string) diagnosis.Finding {
	if code == diagnosis.ConnectionBroken {
		if refused, evidence := d.refusesCallers(ctx); refused {
			code = diagnosis.CallerRefused
			if evidence != "" {
				reason += "; this process, without a client certificate, is told: " + evidence
			}
		}
	}
	return d.finding(ctx, code, reason)
}

// finding returns the finding about the path to this program that belongs to the code. reason is the evidence.
func (d *diagnostic) finding(ctx context.Context, code diagnosis.Code, reason string) diagnosis.Finding {
	at := d.Options.Target.String()
	f := diagnosis.Finding{Code: code, Severity: diagnosis.Problem, Object: at, Evidence: reason}
	say := func(message, remedy string) { f.Message, f.Remedy = message, remedy }
	switch code {
	case diagnosis.ServiceMissing:
		return d.serviceMissing(reason)
	case diagnosis.NoReadyEndpoints:
		return d.noReadyEndpoints(reason)
	case diagnosis.ServiceUnusable:
		return d.serviceUnusable(reason)
	case diagnosis.PortMismatch:
		return d.noSuchServicePort(reason)
	case diagnosis.BundleUnreadable:
		say("the caBundle that is registered holds no readable certificate, so the API server cannot call", "call RegisterExtensions")
	case diagnosis.UnknownAuthority, diagnosis.NameMismatch, diagnosis.Expired:
		if code == diagnosis.UnknownAuthority && d.Verify != nil && d.looked && !d.untrusted {
			say(fmt.Sprintf("something else than this process answers at %s, with a certificate that %s does not trust", at, d.caller), d.whoAnswers())
			break
		}
		say(fmt.Sprintf("%s does not trust the certificate that it is shown at %s", d.caller, at), remedyFor(code, d.serverName(), "call RegisterExtensions"))
	case diagnosis.NotTLS:
		say(fmt.Sprintf("the server at %s does not speak TLS", at), d.whoAnswers())
	case diagnosis.CallerRefused:
		say(fmt.Sprintf("the server at %s refuses %s as a caller", at, d.caller),
			"see that ManagerOptions.ClientCA and ClientNames are those of the certificate that the API server shows (its --admission-control-config-file)")
	case diagnosis.NoTunnel:
		say(fmt.Sprintf("the control plane's tunnel to the nodes is down, so %s does not reach %s", d.caller, at), "see to the tunnel's agents (konnectivity-agent) on the nodes")
	case diagnosis.NoSuchHost:
		say(fmt.Sprintf("%s cannot resolve the name of %s", d.caller, at), d.howToName())
	case diagnosis.NoRoute:
		say(fmt.Sprintf("%s has no route to %s", d.caller, at), d.howToReach())
	case diagnosis.ConnectionRefused:
		say(fmt.Sprintf("nothing listens at %s: the connection of %s was refused", at, d.caller), d.whereToListen())
	case diagnosis.ConnectionBroken:
		say(fmt.Sprintf("the server at %s closes the connection before it answers", at), d.whoAnswers())
	case diagnosis.TimedOut:
		say(fmt.Sprintf("%s gets no answer from %s in time", d.caller, at), d.whyTimedOut(ctx))
	case diagnosis.BadAnswer:
		say(fmt.Sprintf("the server at %s gives no proper answer to the canary", at), "if a rollout is in progress wait for its end, else "+d.whoAnswers())
	default:
		say(fmt.Sprintf("%s cannot call %s, for a reason that is not known here", d.caller, at), "see the evidence")
	}
	return f
}

// remedyFor returns the remedy for an untrusted certificate.
func remedyFor(code diagnosis.Code, host, remedy string) string {
	switch code {
	case diagnosis.NameMismatch:
		return fmt.Sprintf("let the certificate be for %s: the one that is made here is, so see to ManagerOptions.Host, ServiceName and WebhookNamespace, or to the issuer of ManagerOptions.Certificates", host)
	case diagnosis.Expired:
		return "set the clocks of the nodes and of the control plane, and see why the certificate is not renewed (the log, or the issuer of ManagerOptions.Certificates)"
	}
	return remedy
}

func (d *diagnostic) howToName() string {
	if d.serviceMode() {
		return fmt.Sprintf("let the externalName of %s be a name that the control plane resolves", d.service())
	}
	return "set ManagerOptions.Host to a name or an address that the control plane resolves; it mostly does not know the names of the cluster's own DNS"
}

func (d *diagnostic) whoAnswers() string {
	if d.serviceMode() {
		return fmt.Sprintf("see that the selector of %s takes in the pods of this program alone, and that its targetPort is their webhook port", d.service())
	}
	return "find the process that listens there, and set ManagerOptions.Host and Port to where the API server reaches this program"
}

func (d *diagnostic) whereToListen() string {
	if d.serviceMode() {
		return fmt.Sprintf("see that the pods behind %s run and listen on its targetPort%s", d.service(), d.listeningHere())
	}
	return "see that this program runs, and set ManagerOptions.Host and Port to where the API server reaches it" + d.listeningHere()
}

func (d *diagnostic) listeningHere() string {
	if d.Listen == "" {
		return ""
	}
	return " (this process listens on " + d.Listen + ")"
}

// openPort returns the port that must be open towards the nodes. It is the pods' port, to which a packet is addressed
// after the Service.
func (d *diagnostic) openPort() int32 {
	if d.serviceMode() {
		if port := d.backend.podPort(d.Options.Target.Port); port != 0 {
			return port
		}
		if port := d.listenPort(); port != 0 {
			return port
		}
	}
	return d.Options.Target.Port
}

func (d *diagnostic) howToReach() string {
	where := d.Options.Target.Host
	if d.serviceMode() {
		where = "the nodes"
	}
	return fmt.Sprintf("allow TCP port %d from the control plane to %s in firewalls, security groups and NetworkPolicies", d.openPort(), where)
}

// whyTimedOut distinguishes a firewall from a hanging process by connecting from this process.
func (d *diagnostic) whyTimedOut(ctx context.Context) string {
	if !d.canProbe() {
		return d.howToReach()
	}
	if err := d.probe(ctx, true); err != nil {
		return fmt.Sprintf("see why this process gets no answer either (%v), or %s", err, d.howToReach())
	}
	return "this process gets one, so " + d.howToReach()
}

func readable(bundle []byte) bool {
	return x509.NewCertPool().AppendCertsFromPEM(bundle)
}

func address(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
