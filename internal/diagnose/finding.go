package diagnose

// This file defines the findings of a diagnosis, and their report.

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

// Severity is the effect of a finding on admission.
type Severity string

// A Problem prevents calls of the webhook, or the admission of objects. A Warning may prevent them.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Code is the kind of a finding. Codes are stable, so programs can compare them.
type Code string

// The kinds of findings between the API server and this process, beginning at the API server.
const (
	NotBegun             Code = "NotBegun"             // the program could not begin a diagnosis
	APIServerUnreachable Code = "APIServerUnreachable" // this process gets no answer from the API server
	TooOld               Code = "TooOld"               // the API server lacks matchConditions
	NotRegistered        Code = "NotRegistered"        // a configuration or one of its entries is missing
	OwnedElsewhere       Code = "OwnedElsewhere"       // the configuration belongs to another deployment
	Calls                Code = "Calls"                // which steps share a call of the API server, and why others do not
	SeveralVersions      Code = "SeveralVersions"      // several versions of this program live, and one waits for another
	WrongTarget          Code = "WrongTarget"          // another address is registered
	Excluded             Code = "Excluded"             // a selector excludes objects that the webhook is for
	Shadowed             Code = "Shadowed"             // another webhook fails for the same objects
	BundleEmpty          Code = "BundleEmpty"
	BundleUnreadable     Code = "BundleUnreadable"
	UnknownAuthority     Code = "UnknownAuthority"  // the caBundle does not trust the serving certificate
	NameMismatch         Code = "NameMismatch"      // the certificate is valid for other names
	Expired              Code = "Expired"           // expired or not valid yet
	NotTLS               Code = "NotTLS"            // the server does not speak TLS
	CallerRefused        Code = "CallerRefused"     // the server requires another client certificate
	NamespaceMissing     Code = "NamespaceMissing"  // missing or being deleted
	ServiceMissing       Code = "ServiceMissing"    // the Service does not exist
	ServiceUnusable      Code = "ServiceUnusable"   // the API server does not call this kind of Service
	NoReadyEndpoints     Code = "NoReadyEndpoints"  // the Service has no ready pod
	PortMismatch         Code = "PortMismatch"      // the ports of Service, registration and process differ
	NoSuchHost           Code = "NoSuchHost"        // the name does not resolve
	NoRoute              Code = "NoRoute"           // the network has no route
	ConnectionRefused    Code = "ConnectionRefused" // nothing listens there
	ConnectionBroken     Code = "ConnectionBroken"  // the server closes the connection
	TimedOut             Code = "TimedOut"          // no answer in time
	NoTunnel             Code = "NoTunnel"          // the control plane's tunnel to the nodes is down
	BadAnswer            Code = "BadAnswer"         // another process than this webhook answers
	NothingListens       Code = "NothingListens"    // this process does not answer on its own port
	NotCalled            Code = "NotCalled"         // the API server did not call, and does not report why
	CannotLook           Code = "CannotLook"        // a right or an answer is missing to find out more
	Unexplained          Code = "Unexplained"       // the API server's message is unknown here
	ReachedFromHere      Code = "ReachedFromHere"   // this process reaches itself by the API server's path
	Reached              Code = "Reached"           // the API server's call came through
	Well                 Code = "Well"              // it came through, and there is no other problem
)

// Finding is one fact about the path. It is an error; Report.Err returns the findings that are problems.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"`   // its subject: kind and name, or an address
	Message  string   `json:"message"`            // one sentence, without its full stop
	Remedy   string   `json:"remedy,omitempty"`   // how to repair it; empty if no action is needed
	Evidence string   `json:"evidence,omitempty"` // the message of the API server or of an error
	Rights   []Right  `json:"-"`                  // the missing rights, if any
}

// String returns the finding on one line.
func (f Finding) String() string { return string(f.Severity) + " " + f.Error() }

func (f Finding) Error() string {
	text := string(f.Code) + ": " + f.Message
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	if f.Evidence != "" {
		text += " (" + strings.Join(strings.Fields(f.Evidence), " ") + ")"
	}
	return text
}

// Report holds the findings of a diagnosis: problems first, then warnings, then notes.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Failed returns the report of a diagnosis that could not begin, for example without a usable kubeconfig.
func Failed(err error) Report {
	return Report{Findings: []Finding{{Code: NotBegun, Severity: Problem, Message: err.Error()}}}
}

// String returns one line per finding.
func (r Report) String() string {
	var text strings.Builder
	for _, f := range r.Findings {
		text.WriteString(f.String())
		text.WriteByte('\n')
	}
	return text.String()
}

// Err joins the problems, each of which is a Finding. It returns nil if there are none.
func (r Report) Err() error {
	var errs []error
	for _, f := range r.Findings {
		if f.Severity == Problem {
			errs = append(errs, f)
		}
	}
	return errors.Join(errs...)
}

// Find returns the first finding with this code.
func (r Report) Find(c Code) (Finding, bool) {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Code == c })
	if i < 0 {
		return Finding{}, false
	}
	return r.Findings[i], true
}

// Rights returns the missing rights that limited the diagnosis. Manifest returns the objects that grant them.
func (r Report) Rights() []Right {
	var rights []Right
	for _, f := range r.Findings {
		rights = append(rights, f.Rights...)
	}
	return rights
}

// Log logs one line per finding: problems as errors, the others as information.
func (r Report) Log(log logr.Logger) {
	for _, f := range r.Findings {
		f.log(log, f.Severity == Problem, f.Message)
	}
}

// log logs the finding with a message, as an error or as information.
func (f Finding) log(log logr.Logger, isError bool, message string) {
	values := []any{"code", f.Code, "severity", f.Severity}
	for _, more := range []struct{ key, value string }{{"object", f.Object}, {"remedy", f.Remedy}, {"evidence", f.Evidence}} {
		if more.value != "" {
			values = append(values, more.key, more.value)
		}
	}
	if isError {
		log.Error(nil, message, values...)
	} else {
		log.Info(message, values...)
	}
}

var severities = []Severity{Problem, Warning, Note}

// sorted returns the findings in the order of their severity, each once.
func sorted(findings []Finding) Report {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	var once []Finding
	for _, f := range findings {
		i := slices.IndexFunc(once, func(o Finding) bool { return o.Code == f.Code && o.Object == f.Object })
		if i < 0 {
			once = append(once, f)
			continue
		}
		once[i].Evidence = cmp.Or(once[i].Evidence, f.Evidence)
	}
	return Report{Findings: once}
}
