package diagnose

import "strings"

// Severity says what a finding means for admission.
type Severity string

// A Problem keeps the API server from calling the webhook, or objects from being admitted. A Warning may.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Code is what kind of thing was found. Codes are stable: programs may look for them.
type Code string

// What is found between the API server and this process, the API server's end first.
const (
	NotBegun             Code = "NotBegun"             // there was no diagnosis: the program lacks what it takes
	APIServerUnreachable Code = "APIServerUnreachable" // this process gets no answer from the API server
	TooOld               Code = "TooOld"               // the API server lacks matchConditions
	NotRegistered        Code = "NotRegistered"        // a configuration or an entry of it is missing
	OwnedElsewhere       Code = "OwnedElsewhere"       // the configuration belongs to another deployment
	WrongTarget          Code = "WrongTarget"          // another address is registered
	Excluded             Code = "Excluded"             // a selector leaves out what should be called for
	Shadowed             Code = "Shadowed"             // another webhook fails for the same objects
	BundleEmpty          Code = "BundleEmpty"
	BundleUnreadable     Code = "BundleUnreadable"
	UnknownAuthority     Code = "UnknownAuthority"  // the caBundle does not trust what is served
	NameMismatch         Code = "NameMismatch"      // the certificate is for other names
	Expired              Code = "Expired"           // or not valid yet
	NotTLS               Code = "NotTLS"            // what answers does not speak TLS
	CallerRefused        Code = "CallerRefused"     // this program wants another client certificate
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
	Unexplained          Code = "Unexplained"       // what the API server says is new to us
	ReachedFromHere      Code = "ReachedFromHere"   // this process reaches itself the way the API server would
	Reached              Code = "Reached"           // the API server's call came through
	Well                 Code = "Well"              // and nothing else is wrong
)

// Finding is one thing that was found. It is an error, of which a Report gives those that are problems.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"`   // what it is about: kind and name, or an address
	Message  string   `json:"message"`            // one sentence, without its full stop
	Remedy   string   `json:"remedy,omitempty"`   // what to do; empty where nothing need be done
	Evidence string   `json:"evidence,omitempty"` // what was said to us, as it was said
	Rights   []Right  `json:"-"`                  // those that are missing, where that is what was found
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
