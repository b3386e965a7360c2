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

// explain turns the API server's error about the canary into a finding.
func (d *diagnosis) explain(ctx context.Context, text string) Finding {
	f, ok := parseFailure(text)
	canary := d.Options.WebhookName(CanaryName)
	switch {
	case !ok:
		return Finding{
			Code: Unexplained, Severity: Warning, Object: d.Options.Target.String(),
			Message: "the API server refuses the canary before it calls this program", Evidence: text,
			Remedy: "find the policy or quota that refuses ConfigMaps in Namespace " + d.Canary.Namespace,
		}
	case f.webhook != canary:
		return d.shadowedCanary(ctx, f, text)
	case f.denied: // not by this program, which never denies the canary
		return Finding{
			Code: BadAnswer, Severity: Problem, Object: d.Options.Target.String(),
			Message: fmt.Sprintf("something else than this program answers at %s", d.Options.Target),
			Remedy:  d.whoAnswers(), Evidence: text,
		}
	}
	return d.brokenPath(ctx, classify(f.reason), f.reason)
}

// brokenPath returns a finding about the path to this program. For a broken connection it first determines the reason.
func (d *diagnosis) brokenPath(ctx context.Context, code Code, reason string) Finding {
	if code == ConnectionBroken {
		if refused, evidence := d.refusesCallers(ctx); refused {
			code = CallerRefused
			if evidence != "" {
				reason += "; this process, without a client certificate, is told: " + evidence
			}
		}
	}
	return d.finding(ctx, code, reason)
}

// finding returns the finding about the path to this program that belongs to the code. reason is the evidence.
func (d *diagnosis) finding(ctx context.Context, code Code, reason string) Finding {
	at := d.Options.Target.String()
	f := Finding{Code: code, Severity: Problem, Object: at, Evidence: reason}
	say := func(message, remedy string) { f.Message, f.Remedy = message, remedy }
	switch code {
	case ServiceMissing:
		return d.serviceMissing(reason)
	case NoReadyEndpoints:
		return d.noReadyEndpoints(reason)
	case ServiceUnusable:
		return d.serviceUnusable(reason)
	case PortMismatch:
		return d.noSuchServicePort(reason)
	case BundleUnreadable:
		say("the caBundle that is registered holds no readable certificate, so the API server cannot call", "call RegisterExtensions")
	case UnknownAuthority, NameMismatch, Expired:
		if code == UnknownAuthority && d.Verify != nil && d.looked && !d.untrusted {
			say(fmt.Sprintf("something else than this process answers at %s, with a certificate that %s does not trust", at, d.caller), d.whoAnswers())
			break
		}
		say(fmt.Sprintf("%s does not trust the certificate that it is shown at %s", d.caller, at), remedyFor(code, d.serverName(), "call RegisterExtensions"))
	case NotTLS:
		say(fmt.Sprintf("the server at %s does not speak TLS", at), d.whoAnswers())
	case CallerRefused:
		say(fmt.Sprintf("the server at %s refuses %s as a caller", at, d.caller),
			"see that ManagerOptions.ClientCA and ClientNames are those of the certificate that the API server shows (its --admission-control-config-file)")
	case NoTunnel:
		say(fmt.Sprintf("the control plane's tunnel to the nodes is down, so %s does not reach %s", d.caller, at), "see to the tunnel's agents (konnectivity-agent) on the nodes")
	case NoSuchHost:
		say(fmt.Sprintf("%s cannot resolve the name of %s", d.caller, at), d.howToName())
	case NoRoute:
		say(fmt.Sprintf("%s has no route to %s", d.caller, at), d.howToReach())
	case ConnectionRefused:
		say(fmt.Sprintf("nothing listens at %s: the connection of %s was refused", at, d.caller), d.whereToListen())
	case ConnectionBroken:
		say(fmt.Sprintf("the server at %s closes the connection before it answers", at), d.whoAnswers())
	case TimedOut:
		say(fmt.Sprintf("%s gets no answer from %s in time", d.caller, at), d.whyTimedOut(ctx))
	case BadAnswer:
		say(fmt.Sprintf("the server at %s gives no proper answer to the canary", at), "if a rollout is in progress wait for its end, else "+d.whoAnswers())
	default:
		say(fmt.Sprintf("%s cannot call %s, for a reason that is not known here", d.caller, at), "see the evidence")
	}
	return f
}

// remedyFor returns the remedy for an untrusted certificate.
func remedyFor(code Code, host, remedy string) string {
	switch code {
	case NameMismatch:
		return fmt.Sprintf("let the certificate be for %s: the one that is made here is, so see to ManagerOptions.Host, ServiceName and WebhookNamespace, or to the issuer of ManagerOptions.Certificates", host)
	case Expired:
		return "set the clocks of the nodes and of the control plane, and see why the certificate is not renewed (the log, or the issuer of ManagerOptions.Certificates)"
	}
	return remedy
}

func (d *diagnosis) howToName() string {
	if d.serviceMode() {
		return fmt.Sprintf("let the externalName of %s be a name that the control plane resolves", d.service())
	}
	return "set ManagerOptions.Host to a name or an address that the control plane resolves; it mostly does not know the names of the cluster's own DNS"
}

func (d *diagnosis) whoAnswers() string {
	if d.serviceMode() {
		return fmt.Sprintf("see that the selector of %s takes in the pods of this program alone, and that its targetPort is their webhook port", d.service())
	}
	return "find the process that listens there, and set ManagerOptions.Host and Port to where the API server reaches this program"
}

func (d *diagnosis) whereToListen() string {
	if d.serviceMode() {
		return fmt.Sprintf("see that the pods behind %s run and listen on its targetPort%s", d.service(), d.listeningHere())
	}
	return "see that this program runs, and set ManagerOptions.Host and Port to where the API server reaches it" + d.listeningHere()
}

func (d *diagnosis) listeningHere() string {
	if d.Listen == "" {
		return ""
	}
	return " (this process listens on " + d.Listen + ")"
}

// openPort returns the port that must be open towards the nodes. It is the pods' port, to which a packet is addressed
// after the Service.
func (d *diagnosis) openPort() int32 {
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

func (d *diagnosis) howToReach() string {
	where := d.Options.Target.Host
	if d.serviceMode() {
		where = "the nodes"
	}
	return fmt.Sprintf("allow TCP port %d from the control plane to %s in firewalls, security groups and NetworkPolicies", d.openPort(), where)
}

// whyTimedOut distinguishes a firewall from a hanging process by connecting from this process.
func (d *diagnosis) whyTimedOut(ctx context.Context) string {
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
