// Package diagnosis defines the report of a diagnosis: the faults that keep the API server from calling a program, each
// with a code that programs can compare.
//
//	report := x.Diagnose(ctx)
//	if _, found := report.Find(diagnosis.NoReadyEndpoints); found {
//		// wait for the rollout
//	}
//
// ExtensionManager.Diagnose returns such a report. docs/reference/findings.md lists the codes with their remedies.
package diagnosis

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

// Report holds the findings of a diagnosis: problems first, then warnings, then notes.
type Report struct {
	Findings []Finding `json:"findings"`
}

// String returns one line per finding.
func (r Report) String() string {
	var text strings.Builder
	for _, f := range r.Findings {
		text.WriteString(f.String() + "\n")
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

// Rights returns the missing rights that limited the diagnosis.
func (r Report) Rights() []Right {
	var rights []Right
	for _, f := range r.Findings {
		rights = append(rights, f.Rights...)
	}
	return rights
}

// Log logs one line per finding: problems as errors, the others as information. A warning has that level where the logger
// has it, as those of zap and log/slog do.
func (r Report) Log(log logr.Logger) {
	for _, f := range r.Findings {
		switch f.Severity {
		case Problem:
			log.Error(nil, f.Message, f.KeysAndValues()...)
		case Warning:
			slog.New(logr.ToSlogHandler(log)).Warn(f.Message, f.KeysAndValues()...)
		default:
			log.Info(f.Message, f.KeysAndValues()...)
		}
	}
}

// Finding is one fact about the path from the API server to the program. It is an error; Report.Err returns the
// findings that are problems.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"`   // its subject: kind and name, or an address
	Message  string   `json:"message"`            // one sentence, without its full stop
	Remedy   string   `json:"remedy,omitempty"`   // how to repair it; empty if no action is needed
	Evidence string   `json:"evidence,omitempty"` // the message of the API server or of an error
	Rights   []Right  `json:"-"`                  // the missing rights, if any
}

// String returns the finding on one line, which begins with the severity.
func (f Finding) String() string { return string(f.Severity) + " " + f.Error() }

// Error returns the finding on one line: code, message, remedy and evidence.
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

// KeysAndValues returns everything but the message in the form that structured loggers take. It leaves out empty
// fields.
func (f Finding) KeysAndValues() []any {
	values := []any{"code", f.Code, "severity", f.Severity}
	for _, field := range [][2]string{{"object", f.Object}, {"remedy", f.Remedy}, {"evidence", f.Evidence}} {
		if field[1] != "" {
			values = append(values, field[0], field[1])
		}
	}
	return values
}

// Severity is the effect of a finding on admission.
type Severity string

// The severities. A Problem prevents calls of the webhook, or the admission of objects. A Warning may prevent them.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Code is the kind of a finding. Later versions may add codes.
type Code string

// The codes, in the order of the path from the API server to the program.
const (
	NotStarted           Code = "NotStarted"           // the diagnosis did not start
	APIServerUnreachable Code = "APIServerUnreachable" // this process gets no answer from the API server
	TooOld               Code = "TooOld"               // the API server may ignore matchConditions
	NotRegistered        Code = "NotRegistered"        // a configuration or one of its entries is missing
	OwnedElsewhere       Code = "OwnedElsewhere"       // the configuration belongs to another deployment
	Orphaned             Code = "Orphaned"             // a configuration that no program keeps in order calls this program
	SharedCalls          Code = "SharedCalls"          // which steps share a call of the API server
	ModeSet              Code = "ModeSet"              // a ConfigMap sets the mode of a step
	ModeRefused          Code = "ModeRefused"          // an entry of that ConfigMap cannot be used
	ReadsNotListed       Code = "ReadsNotListed"       // objects that steps look at cannot be listed, or are too old
	SeveralVersions      Code = "SeveralVersions"      // several versions of this program run
	WrongTarget          Code = "WrongTarget"          // another address is registered
	DefinitionMissing    Code = "DefinitionMissing"    // the CustomResourceDefinition of a Conversion does not exist
	NotConverted         Code = "NotConverted"         // a definition has a version that its Conversion lacks
	StillStored          Code = "StillStored"          // objects may still be stored in an older version
	Incomplete           Code = "Incomplete"           // objects have lost values in conversions
	OtherInjector        Code = "OtherInjector"        // an annotation makes another tool write the caBundle
	HoldsObjects         Code = "HoldsObjects"         // the program does not answer, and so objects cannot be deleted
	Excluded             Code = "Excluded"             // a selector excludes objects that the webhook is for
	Shadowed             Code = "Shadowed"             // another webhook fails for the same objects
	BlocksItself         Code = "BlocksItself"         // this program's webhook refuses the pods that it runs in
	TimeoutsAddUp        Code = "TimeoutsAddUp"        // webhooks that ignore failures can use up a request's time
	BundleEmpty          Code = "BundleEmpty"          // the caBundle is empty
	BundleUnreadable     Code = "BundleUnreadable"     // the caBundle has no readable certificate
	UnknownAuthority     Code = "UnknownAuthority"     // the caBundle does not verify the serving certificate
	NameMismatch         Code = "NameMismatch"         // the certificate is valid for other names
	Expired              Code = "Expired"              // the certificate has expired or is not valid yet
	NotTLS               Code = "NotTLS"               // the server does not speak TLS
	CallerRefused        Code = "CallerRefused"        // the server requires another client certificate
	NamespaceMissing     Code = "NamespaceMissing"     // the program's namespace is missing or being deleted
	ServiceMissing       Code = "ServiceMissing"       // the Service does not exist
	ServiceUnusable      Code = "ServiceUnusable"      // the API server does not call this kind of Service
	NoReadyEndpoints     Code = "NoReadyEndpoints"     // the Service has no ready pod
	PortMismatch         Code = "PortMismatch"         // the ports of Service, registration and process differ
	NoSuchHost           Code = "NoSuchHost"           // the name does not resolve
	NoRoute              Code = "NoRoute"              // the network has no route
	ConnectionRefused    Code = "ConnectionRefused"    // nothing listens at the address
	ConnectionBroken     Code = "ConnectionBroken"     // the server closes the connection
	TimedOut             Code = "TimedOut"             // the server does not answer in time
	NoTunnel             Code = "NoTunnel"             // the control plane's tunnel to the nodes is down
	BadAnswer            Code = "BadAnswer"            // another program answers
	NothingListens       Code = "NothingListens"       // this process does not answer on its own port
	NotCalled            Code = "NotCalled"            // the API server did not call, and does not report why
	CheckSkipped         Code = "CheckSkipped"         // a check failed because a right or an answer is missing
	Unexplained          Code = "Unexplained"          // the API server's message is not known here
	ReachedFromHere      Code = "ReachedFromHere"      // this process reaches itself by the API server's path
	Reached              Code = "Reached"              // the API server's call came through
	Healthy              Code = "Healthy"              // the call came through, and there is no problem
)

// Right is one action that a program must be allowed to take, in the terms of RBAC.
type Right struct {
	Group     string // API group; empty for the core group
	Resource  string // with its subresource, if any: pods/exec
	Verb      string // get, list, watch, create, update ...
	Namespace string // empty for cluster-scoped objects, and for all namespaces
	Name      string // of the single object; empty for all
}

// String returns the right in the form that error messages use.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	switch {
	case r.Name != "" && r.Namespace != "":
		text += " " + r.Namespace + "/" + r.Name
	case r.Name != "":
		text += " " + r.Name
	case r.Namespace != "":
		text += " in namespace " + r.Namespace
	}
	return text
}
