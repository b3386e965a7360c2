package diagnose

// This file turns a failed call into a finding with a remedy.

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/diagnosis"
)

// signs are parts of error messages, those of Go's libraries and of the API server. The first match counts.
var signs = []struct {
	code  diagnosis.Code
	texts []string
}{
	{diagnosis.PortMismatch, []string{"no service port"}},
	{diagnosis.NoReadyEndpoints, []string{"no endpoints available for service"}},
	{diagnosis.ServiceUnusable, []string{"cannot route to service with ClusterIP", "unsupported service type"}},
	{diagnosis.BundleUnreadable, []string{"unable to load root certificates"}},
	{diagnosis.UnknownAuthority, []string{"certificate signed by unknown authority"}},
	{diagnosis.NameMismatch, []string{
		"x509: certificate is valid for", "x509: certificate is not valid for", "x509: cannot validate certificate for",
		"x509: certificate relies on legacy Common Name",
	}},
	{diagnosis.Expired, []string{"certificate has expired or is not yet valid"}},
	{diagnosis.NotTLS, []string{"server gave HTTP response to HTTPS client", "does not look like a TLS handshake"}},
	// The first of these is a server without a certificate.
	{diagnosis.ConnectionBroken, []string{"remote error: tls: internal error", "remote error: tls: unrecognized name"}},
	{diagnosis.CallerRefused, []string{"remote error: tls:", "provide credentials"}}, // the latter is HTTP 401
	{diagnosis.NoTunnel, []string{"No agent available", "proxy error from"}},
	{diagnosis.NoSuchHost, []string{"no such host", "server misbehaving"}},
	{diagnosis.NoRoute, []string{"no route to host", "network is unreachable"}},
	{diagnosis.ConnectionRefused, []string{"connection refused"}},
	{diagnosis.TimedOut, []string{"i/o timeout", "deadline exceeded", "Client.Timeout", "handshake timeout"}},
	{diagnosis.ConnectionBroken, []string{
		"connection reset by peer", "broken pipe", ": EOF", "unexpected EOF", "http2: client conn",
		"http2: no cached connection",
		"GOAWAY", "server closed idle connection", "use of closed network connection",
	}},
	{diagnosis.BadAnswer, []string{
		// HTTP 404, 500 and 503
		"could not find the requested resource", "an error on the server", "unable to handle the request",
		"invalid webhook response", "expected webhook response", "expected response.uid", "couldn't get version/kind",
		"couldn't get resource from scheme", "invalid character",
	}},
}

// classify returns the kind of fault for the reason of a failed call.
func classify(reason string) diagnosis.Code {
	if strings.Contains(reason, `service "`) && strings.HasSuffix(strings.TrimSpace(reason), `not found`) {
		return diagnosis.ServiceMissing
	}
	for _, s := range signs {
		if slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(reason, text) }) {
			return s.code
		}
	}
	return diagnosis.Unexplained
}

// The forms of an API server's error about a webhook: it could not be called, or it denied the request.
var (
	failedCall = regexp.MustCompile(`(?s)failed calling webhook "(.*?)": (.*)`)
	denial     = regexp.MustCompile(`(?s)admission webhook "(.*?)" denied the request(?:: )?(.*)`)
)

// failure is an API server's error about a webhook.
type failure struct {
	webhook string
	denied  bool   // the webhook was called and denied the request; otherwise the call failed
	reason  string // the API server's message about the call
}

// parseFailure extracts the webhook and the reason from an API server's error.
func parseFailure(text string) (failure, bool) {
	if found := failedCall.FindStringSubmatch(text); found != nil {
		return failure{webhook: found[1], reason: found[2]}, true
	}
	if found := denial.FindStringSubmatch(text); found != nil {
		return failure{webhook: found[1], denied: true, reason: found[2]}, true
	}
	return failure{}, false
}

// explain turns the API server's error about the canary into a finding.
func (d *diagnostic) explain(ctx context.Context, text string) diagnosis.Finding {
	f, ok := parseFailure(text)
	at := d.Options.Target.String()
	switch {
	case !ok:
		return warning(diagnosis.Unexplained, at, "the API server refuses the canary before it calls this program",
			"find the policy or quota that refuses ConfigMaps in Namespace "+d.Canary.Namespace, text)
	case f.webhook != d.Options.WebhookName(CanaryName):
		return d.shadowedCanary(ctx, f, text)
	case f.denied: // not by this program, which never denies the canary
		return problem(diagnosis.BadAnswer, at, "another program than this one answers at "+at, d.whoAnswers(), text)
	}
	return d.brokenPath(ctx, classify(f.reason), f.reason)
}

// brokenPath returns a finding about the path to this program. For a broken connection it first determines the reason.
func (d *diagnostic) brokenPath(ctx context.Context, code diagnosis.Code, reason string) diagnosis.Finding {
	if code == diagnosis.ConnectionBroken {
		if refused, evidence := d.refusesCallers(ctx); refused {
			code = diagnosis.CallerRefused
			if evidence != "" {
				reason += "; this process, without a client certificate, gets: " + evidence
			}
		}
	}
	if message, remedy := d.describeService(code); message != "" {
		return problem(code, d.Options.Target.Program(), message, remedy, reason)
	}
	message, remedy := d.describe(ctx, code)
	return problem(code, d.Options.Target.String(), message, remedy, reason)
}

// describe returns the message and the remedy for a fault at the address that the API server calls.
func (d *diagnostic) describe(ctx context.Context, code diagnosis.Code) (message, remedy string) {
	at := d.Options.Target.String()
	switch code {
	case diagnosis.BundleUnreadable:
		return "the registered caBundle holds no readable certificate, so the API server cannot call",
			d.register()
	case diagnosis.UnknownAuthority, diagnosis.NameMismatch, diagnosis.Expired:
		if code != diagnosis.Expired && d.Verify != nil && d.looked && !d.untrusted {
			return fmt.Sprintf("another server than this process answers at %s, with a certificate that %s does not trust", at, d.caller), d.whoAnswers()
		}
		remedy = d.whyUntrusted(code)
		if code == diagnosis.NameMismatch {
			remedy = "if this program answers there, " + remedy + "; otherwise " + d.whoAnswers()
		}
		return fmt.Sprintf("%s does not trust the serving certificate at %s", d.caller, at), remedy
	case diagnosis.NotTLS:
		return fmt.Sprintf("the server at %s does not speak TLS", at), d.whoAnswers()
	case diagnosis.CallerRefused:
		return fmt.Sprintf("the server at %s refuses %s as a caller", at, d.caller),
			"set ManagerOptions.ClientCA and its Names to those of the certificate that the API server shows (its --admission-control-config-file)"
	case diagnosis.NoTunnel:
		return fmt.Sprintf("the control plane's tunnel to the nodes is down, so %s does not reach %s", d.caller, at),
			"check the tunnel's agents (konnectivity-agent) on the nodes"
	case diagnosis.NoSuchHost:
		return fmt.Sprintf("%s cannot resolve the name of %s", d.caller, at), d.byMode(
			"set the externalName of %s to a name that the control plane resolves",
			"set ManagerOptions.Host to a name or an address that the control plane resolves; it mostly does not know the names of the cluster's own DNS")
	case diagnosis.NoRoute:
		return fmt.Sprintf("%s has no route to %s", d.caller, at), d.howToReach()
	case diagnosis.ConnectionRefused:
		remedy = d.byMode("check that the pods behind %s run and listen on its targetPort",
			"check that this program runs, and set ManagerOptions.Host and Port to the address at which the API server reaches it")
		if d.Listen != "" {
			remedy += " (this process listens on " + d.Listen + ")"
		}
		return fmt.Sprintf("nothing listens at %s: the connection of %s was refused", at, d.caller), remedy
	case diagnosis.ConnectionBroken:
		return fmt.Sprintf("the server at %s closes the connection before it answers", at), d.whoAnswers()
	case diagnosis.TimedOut:
		return fmt.Sprintf("%s gets no answer from %s in time", d.caller, at), d.whyTimedOut(ctx)
	case diagnosis.BadAnswer:
		return fmt.Sprintf("the server at %s gives no proper answer to the canary", at),
			"wait for the end of a rollout, or " + d.whoAnswers()
	}
	return fmt.Sprintf("%s cannot call %s, for a reason that is not known here", d.caller, at), "read the evidence"
}

// whyUntrusted returns the remedy for an untrusted certificate.
func (d *diagnostic) whyUntrusted(code diagnosis.Code) string {
	switch code {
	case diagnosis.NameMismatch:
		return fmt.Sprintf("issue the certificate for %s: correct ManagerOptions.Host, ServiceName and WebhookNamespace, or the issuer of ManagerOptions.Certificates", d.serverName())
	case diagnosis.Expired:
		return "set the clocks of the nodes and of the control plane, and find out why the certificate is not renewed (from the log, or from the issuer of ManagerOptions.Certificates)"
	}
	return d.register()
}

// byMode returns the remedy for a Service, whose name it inserts, or for an address.
func (d *diagnostic) byMode(service, address string) string {
	if d.serviceMode() {
		return fmt.Sprintf(service, d.Options.Target.Program())
	}
	return address
}

func (d *diagnostic) whoAnswers() string {
	return d.byMode("check that the selector of %s matches the pods of this program alone, and that its targetPort is their webhook port",
		"find the process that listens there, and set ManagerOptions.Host and Port to the address at which the API server reaches this program")
}

// openPort returns the port that must be open towards the nodes. It is the pods' port, to which a packet is addressed
// after the Service.
func (d *diagnostic) openPort() int32 {
	port := d.Options.Target.Port
	if d.serviceMode() {
		_, own := d.own()
		return cmp.Or(d.backend.podPort, own, port)
	}
	return port
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
	if d.targetAddress() == "" {
		return d.howToReach()
	}
	if err := d.probe(ctx, awaitAnswer); err != nil {
		return fmt.Sprintf("find out why this process gets no answer either (%v), or %s", err, d.howToReach())
	}
	return "this process gets an answer, so " + d.howToReach()
}
