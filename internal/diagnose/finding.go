package diagnose

import "strings"

// Severity is how much a finding matters for admission.
type Severity string

// A Problem keeps the API server from calling the webhook, or objects from being admitted. A Warning may.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Code is the kind of a finding. Codes are stable: programs may look for them.
type Code string

// The kinds of findings between the API server and this process, the API server's end first.
const (
	NotBegun             Code = "NotBegun"             // there was no diagnosis: the program could not begin one
	APIServerUnreachable Code = "APIServerUnreachable" // this process gets no answer from the API server
	TooOld               Code = "TooOld"               // the API server lacks matchConditions
	NotRegistered        Code = "NotRegistered"        // a configuration or an entry of it is missing
	OwnedElsewhere       Code = "OwnedElsewhere"       // the configuration belongs to another deployment
	Calls                Code = "Calls"                // which steps share a call of the API server, and why others do not
	SeveralVersions      Code = "SeveralVersions"      // of this program live, and one waits for another
	WrongTarget          Code = "WrongTarget"          // another address is registered
	Excluded             Code = "Excluded"             // a selector leaves out objects that the webhook is for
	Shadowed             Code = "Shadowed"             // another webhook fails for the same objects
	BundleEmpty          Code = "BundleEmpty"
	BundleUnreadable     Code = "BundleUnreadable"
	UnknownAuthority     Code = "UnknownAuthority"  // the caBundle does not trust the certificate that is served
	NameMismatch         Code = "NameMismatch"      // the certificate is for other names
	Expired              Code = "Expired"           // or not valid yet
	NotTLS               Code = "NotTLS"            // the server does not speak TLS
	CallerRefused        Code = "CallerRefused"     // the server wants another client certificate
	NamespaceMissing     Code = "NamespaceMissing"  // or ending
	ServiceMissing       Code = "ServiceMissing"    // there is no such Service
	ServiceUnusable      Code = "ServiceUnusable"   // it is of a kind that the API server does not call
	NoReadyEndpoints     Code = "NoReadyEndpoints"  // no pod stands behind the Service
	PortMismatch         Code = "PortMismatch"      // Service, registration and process do not agree
	NoSuchHost           Code = "NoSuchHost"        // the name does not resolve
	NoRoute              Code = "NoRoute"           // the network does not know the way
	ConnectionRefused    Code = "ConnectionRefused" // nothing listens there
	ConnectionBroken     Code = "ConnectionBroken"  // something listens and hangs up
	TimedOut             Code = "TimedOut"          // no answer in time
	NoTunnel             Code = "NoTunnel"          // the control plane's tunnel to the nodes is down
	BadAnswer            Code = "BadAnswer"         // something else than this webhook answers
	NothingListens       Code = "NothingListens"    // this process does not answer on its own port
	NotCalled            Code = "NotCalled"         // the API server did not call, and does not say why
	CannotLook           Code = "CannotLook"        // rights are missing to find out more
	Unexplained          Code = "Unexplained"       // the API server says something that is new to us
	ReachedFromHere      Code = "ReachedFromHere"   // this process reaches itself the way the API server would
	Reached              Code = "Reached"           // the API server's call came through
	Well                 Code = "Well"              // and nothing else is wrong
)

// Finding is one fact about the path. It is an error; Report.Err gives those that are problems.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"`   // its subject: kind and name, or an address
	Message  string   `json:"message"`            // one sentence, without its full stop
	Remedy   string   `json:"remedy,omitempty"`   // the way to mend it; empty where nothing need be done
	Evidence string   `json:"evidence,omitempty"` // the words of the API server or of an error
	Rights   []Right  `json:"-"`                  // those that are missing, if rights are
}

// String is the finding on one line.
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
