// Package diagnose finds the reason why a part of the path between the API server and the webhook does not work. Each
// finding names the object and the remedy. Package diagnosis at the root of the module declares the findings.
//
// Preflight asks the API server which rights are missing, and logs the RBAC objects that grant them, which can be applied
// unchanged. Run is the diagnosis: it makes the API server call the webhook for a test object (see Canary), and checks
// everything that the call passes. Watch is the diagnosis of a program that has just started: it repeats until all is
// well, and logs. None of them writes anything. They need no right: each names the rights that it lacked.
package diagnose

// This file runs a diagnosis along the path of a call, and combines its findings.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Config holds the settings of a diagnosis. Only Clients, Options and Entries are required.
type Config struct {
	Clients cluster.Clients

	Options webhookconf.Options // CABundle is ignored: the live one counts
	Entries []webhookconf.Entry // those that should be registered, with conversions, and the canary's if it has one
	Owner   string              // the certificate Secret of this deployment, "namespace/name"; empty skips its check

	// Canary is the object for which the API server is made to call. The zero Canary sends nothing, and the path is
	// checked only from this process.
	Canary Canary

	// Verify returns nil if a client that trusts the bundle (PEM) accepts the serving certificate of this process. It
	// is nil in a process that serves nothing.
	Verify func(bundle []byte) error
	Listen string // address that this process listens on, host:port; empty if it does not listen

	// AsksClients means that this process accepts only callers with a client certificate. A connection that breaks
	// after the handshake then counts as a rejection.
	AsksClients bool

	// ListsAll makes a diagnosis look for orphans in every webhook configuration of the cluster.
	ListsAll bool

	// Registers means that this process writes the configurations, and so repairs them by itself.
	Registers bool

	// Stored checks the versions of a definition. converts holds the names of those that this program converts. Unless objects
	// is nil, it also lists the objects that are stored, and err is that of the list. Entries with conversions require it.
	Stored func(ctx context.Context, d Definition, converts []string, objects rest.Interface) (all []diagnosis.Finding, err error)

	// Versions returns the live versions that this process knows, in the order in which they came. nil skips the check. It
	// must not block. While another version than this one is registered, entries are not compared with Entries.
	Versions func() []VersionInfo

	// Waiting holds the steps of this program that are not registered yet. Entries holds none of them.
	Waiting []WaitingStep

	// Calls describes which steps share a call of the API server. Run repeats it if Others is set.
	Calls []string

	// Modes returns the modes of steps that the ConfigMap ModesFrom ("namespace/name") sets, and the problems of its
	// other entries. ModesFrom is empty for a program without one.
	ModesFrom string
	Modes     func() (entries, problems []string)

	// Reads returns what steps look at and have not got, or not lately. nil means that this process holds no objects.
	Reads func() []reads.Interruption

	// Others makes Run look for webhooks of other programs that reject the same objects, and for objects that have lost
	// values in conversions. It lists every webhook configuration of the cluster, and the kinds of the conversions.
	Others bool

	// Sends is called when Watch has sent a canary, whether it was answered or not. nil is not called.
	Sends func()

	Network serving.Network
	Timeout time.Duration // for each check; 0 means 5 s
	Settle  time.Duration // how long the API server may take to observe a new configuration; 0 means 5 s
}

func (c Config) serviceMode() bool { return c.Options.Target.Service != "" }

// own returns the address at which this process reaches itself, and its port. Both are zero if it does not listen.
func (c Config) own() (address string, port int32) {
	host, text, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", 0
	}
	if serving.EveryAddress(host) {
		host = "localhost"
	}
	n, _ := strconv.ParseUint(text, 10, 16)
	return net.JoinHostPort(host, text), int32(n)
}

// serverName returns the host that the serving certificate must be valid for.
func (c Config) serverName() string {
	if c.serviceMode() {
		return c.Options.Target.Service + "." + c.Options.Target.Namespace + ".svc"
	}
	return c.Options.Target.Host
}

// diagnostic is one run of a diagnosis, with its findings so far.
type diagnostic struct {
	Config
	conversions []webhookconf.Entry // which Config.Entries does not hold any more
	findings    []diagnosis.Finding
	lacking     []diagnosis.Right
	versions    []VersionInfo // in the order in which they came
	others      []hook        // the entries of all configurations; see allHooks

	looked       bool              // all of our configurations could be read
	waits        bool              // another version of this program is registered
	live         map[string]hook   // the registered entries, by their paths
	converting   []string          // the definitions whose objects this program converts
	untrusted    bool              // a finding reports a caBundle that does not verify the serving certificate
	through      bool              // the API server's call came through
	inconclusive string            // why the canary proves nothing
	blind        bool              // a later canary proves nothing either: it is not requested, or must not be sent
	caller       string            // the process that found the path broken
	backend      backend           // behind the address of the API server's calls
	labels       map[string]string // of the namespace in Options.Namespace

	slow func() // called once if the API server takes long to answer the canary
}

func newDiagnostic(c Config) *diagnostic {
	c.Timeout, c.Settle = cmp.Or(c.Timeout, 5*time.Second), cmp.Or(c.Settle, 5*time.Second)
	d := &diagnostic{Config: c, live: map[string]hook{}, caller: "the API server", slow: func() {}}
	d.Entries = slices.DeleteFunc(slices.Clone(c.Entries), webhookconf.CRD.Holds)
	d.conversions = slices.DeleteFunc(slices.Clone(c.Entries), func(e webhookconf.Entry) bool { return e.Converts == "" })
	if c.Versions != nil {
		// The registration of another version can end before the configurations are read. They hold this version's then.
		d.versions = c.Versions()
		d.waits = slices.ContainsFunc(d.versions, func(v VersionInfo) bool { return v.Registered && !v.Ours })
	}
	return d
}

// Run checks everything between the API server and this process, and reports every fault. It writes nothing. It takes
// some milliseconds if all is well, and as long as the timeouts if something does not answer. When ctx ends, it returns
// its findings so far.
func Run(ctx context.Context, c Config) diagnosis.Report {
	d := newDiagnostic(c)
	if d.look(ctx) {
		d.checkHolding()
		d.checkVersions()
		d.checkModes()
		d.checkReads()
		if d.Others {
			if len(d.Calls) > 0 {
				d.add(note(diagnosis.SharedCalls, d.Options.Target.String(), strings.Join(d.Calls, "; "), ""))
			}
			d.checkOthers(ctx)
		}
	}
	return d.report()
}

// checkModes reports the modes that a ConfigMap sets, and those of its entries that cannot be used.
func (d *diagnostic) checkModes() {
	if d.Modes == nil {
		return
	}
	object := ""
	if d.ModesFrom != "" {
		object = "ConfigMap " + d.ModesFrom
	}
	entries, problems := d.Modes()
	// A report holds one finding of a code about an object.
	if len(problems) > 0 {
		d.add(warning(diagnosis.ModeRefused, object, "the mode of a step cannot be set", "correct the entry", strings.Join(problems, "; ")))
	}
	if len(entries) > 0 {
		d.add(note(diagnosis.ModeSet, object, "the mode of "+strings.Join(entries, "; the mode of "), ""))
	}
}

// WaitingStep is a step that is not registered yet, and the reason.
type WaitingStep struct{ Name, Why string }

// checkReads reports the objects that steps look at and that are missing or too old, and the other steps that are not
// registered yet.
func (d *diagnostic) checkReads() {
	var unread []reads.Interruption
	if d.Reads != nil {
		unread = d.Reads()
	}
	for _, w := range d.Waiting {
		if !slices.ContainsFunc(unread, func(i reads.Interruption) bool { return (!i.Listed || i.Absent) && slices.Contains(i.Steps, w.Name) }) {
			d.add(warning(diagnosis.NotRegistered, "step "+w.Name,
				fmt.Sprintf("the step %s waits until the cluster serves its kind and what it reads is listed; it is then registered by itself", w.Name),
				"", w.Why))
		}
	}
	for _, u := range unread {
		steps := strings.Join(u.Steps, ", ")
		f := problem(diagnosis.ReadsNotListed, u.Objects,
			fmt.Sprintf("objects that steps look at have never been listed, so the steps are not served: %s", steps),
			"create the kind, or grant what manifests.Of grants for it; the steps follow by themselves", u.Reason)
		switch {
		case u.Absent:
			f.Message = fmt.Sprintf("there is no object of those of which steps require one, so the steps fail, or wait to be registered: %s", steps)
			f.Remedy = "create it; the steps follow by themselves"
		case u.Listed:
			f.Message = fmt.Sprintf("the watch of objects that steps look at is broken for %s, so the steps fail: %s", u.For.Round(time.Second), steps)
			f.Remedy = "find out why the watch is refused or cut; the steps follow by themselves"
		}
		d.add(f)
	}
}

// Failed returns the report of a diagnosis that could not begin, for example without a usable kubeconfig.
func Failed(err error) diagnosis.Report {
	return diagnosis.Report{Findings: []diagnosis.Finding{problem(diagnosis.NotStarted, "", err.Error(), "")}}
}

// look follows the path of a call. It returns false if the API server itself is unreachable.
func (d *diagnostic) look(ctx context.Context) bool {
	if !d.checkAPIServer(ctx) {
		return false
	}
	d.checkListener(ctx)
	d.checkRegistration(ctx)
	d.checkDefinitions(ctx)
	d.checkNamespaces(ctx)
	if d.ListsAll {
		d.checkOrphans(ctx)
	}
	d.checkPath(ctx)
	return true
}

// report completes the findings and returns them in the order of their severity, each once.
func (d *diagnostic) report() diagnosis.Report {
	if len(d.lacking) > 0 {
		d.add(diagnosis.Finding{
			Code: diagnosis.CheckSkipped, Severity: diagnosis.Note, Object: "RBAC", Rights: d.lacking,
			Message: "some checks were skipped, because rights are missing",
			Remedy:  "to look there too, call Diagnose as an account that may " + sentence(d.lacking) + "; calls need none of these rights",
		})
	}
	d.mergeSymptoms()
	d.summarize()
	return sorted(d.findings)
}

func sorted(findings []diagnosis.Finding) diagnosis.Report {
	severities := []diagnosis.Severity{diagnosis.Problem, diagnosis.Warning, diagnosis.Note}
	slices.SortStableFunc(findings, func(a, b diagnosis.Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	var once []diagnosis.Finding
	for _, f := range findings {
		i := slices.IndexFunc(once, func(o diagnosis.Finding) bool { return o.Code == f.Code && o.Object == f.Object })
		if i < 0 {
			once = append(once, f)
			continue
		}
		once[i].Evidence = cmp.Or(once[i].Evidence, f.Evidence)
	}
	return diagnosis.Report{Findings: once}
}

// problem returns a finding that is a problem. If evidence is given, it is one message of the API server or of an error.
func problem(code diagnosis.Code, object, message, remedy string, evidence ...string) diagnosis.Finding {
	return diagnosis.Finding{
		Code: code, Severity: diagnosis.Problem, Object: object, Message: message, Remedy: remedy,
		Evidence: strings.Join(evidence, ""),
	}
}

func warning(code diagnosis.Code, object, message, remedy string, evidence ...string) diagnosis.Finding {
	f := problem(code, object, message, remedy, evidence...)
	f.Severity = diagnosis.Warning
	return f
}

func note(code diagnosis.Code, object, message, remedy string) diagnosis.Finding {
	f := problem(code, object, message, remedy)
	f.Severity = diagnosis.Note
	return f
}

func (d *diagnostic) add(f diagnosis.Finding) { d.findings = append(d.findings, f) }

// ask sends a request of this process, in the time for one check. The answer is JSON.
func (d *diagnostic) ask(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return request.SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
}

// get sends the request that a right is for, and decodes the answer: one object if the right has a name, otherwise a
// list, of the objects that the selectors select.
func get[T any](ctx context.Context, d *diagnostic, r diagnosis.Right, selectors ...string) (found T, err error) {
	root := "/api"
	if r.Group != "" {
		root = "/apis/" + r.Group
	}
	request := d.Clients.Discovery().RESTClient().Get().AbsPath(root, "v1").Namespace(r.Namespace).Resource(r.Resource).Suffix(r.Name)
	for _, s := range selectors {
		request.Param("labelSelector", s)
	}
	body, err := d.ask(ctx, request)
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(body, &found)
}

// read is get for an object or a list that the diagnosis can do without. It notes the right if there is no answer.
func read[T any](ctx context.Context, d *diagnostic, r diagnosis.Right, selectors ...string) (T, error) {
	found, err := get[T](ctx, d, r, selectors...)
	if err != nil && !apierrors.IsNotFound(err) {
		d.noteMissingRight(err, r)
	}
	return found, err
}

// noteMissingRight records a check that failed because a right is missing, or for another reason.
func (d *diagnostic) noteMissingRight(err error, right diagnosis.Right) {
	if !apierrors.IsForbidden(err) {
		d.add(warning(diagnosis.CheckSkipped, right.String(),
			"the API server did not answer the request to "+right.String(), "try again", err.Error()))
	} else if !slices.Contains(d.lacking, right) {
		d.lacking = append(d.lacking, right)
	}
}

// checkAPIServer reports whether the API server answers. It also checks the API server's version.
func (d *diagnostic) checkAPIServer(ctx context.Context) bool {
	body, err := d.ask(ctx, d.Clients.Discovery().RESTClient().Get().AbsPath("/version"))
	if apierrors.IsForbidden(err) { // it does answer
		return true
	}
	var info version.Info
	if err == nil && json.Unmarshal(body, &info) != nil {
		err = fmt.Errorf("the server that answers is no API server: %.100q", body)
	}
	if err != nil {
		d.add(problem(diagnosis.APIServerUnreachable, "API server",
			"this process gets no usable answer from the API server",
			"check the kubeconfig and the network between this process and the API server", err.Error()))
		return false
	}
	if old(info) {
		d.add(problem(diagnosis.TooOld, "API server",
			fmt.Sprintf("the API server is %s, which may ignore the matchConditions of webhooks and call them for more objects", info.GitVersion),
			fmt.Sprintf("upgrade the cluster to v%s or later", oldest)))
	}
	return true
}

// oldest is the first version whose stable API includes matchConditions.
var oldest = utilversion.MustParseGeneric("1.30")

func old(info version.Info) bool {
	v, err := utilversion.ParseGeneric(info.Major + "." + info.Minor)
	return err == nil && v.LessThan(oldest)
}

// checkPath makes the API server call, and looks for the reason if the call does not come through.
func (d *diagnostic) checkPath(ctx context.Context) {
	var came call
	switch _, live := d.liveCanary(); {
	case d.Canary.Namespace == "":
		d.inconclusive, d.blind = "no canary was requested", true
	case d.looked && !live:
		d.inconclusive = "the canary is not registered"
	default:
		came = d.awaitCanary(ctx)
		d.through = came.through
	}
	if !d.through && d.serviceMode() {
		d.backend = d.lookup(ctx, d.Options.Target)
	}
	if d.inconclusive == "" {
		d.judgeCanary(ctx, came)
	}
	if d.through {
		return
	}
	d.judgeService(ctx)
	if d.inconclusive != "" && !hasProblem(d.findings) {
		d.callFromHere(ctx)
	}
	d.judgePorts()
}

// hasProblem reports whether a finding may keep calls from this program.
func hasProblem(findings []diagnosis.Finding) bool {
	return slices.ContainsFunc(findings, func(f diagnosis.Finding) bool { return f.Severity == diagnosis.Problem && f.Code != diagnosis.Orphaned })
}

// symptoms are findings whose cause another finding may name.
var symptoms = []diagnosis.Code{
	diagnosis.ConnectionRefused, diagnosis.TimedOut, diagnosis.NoRoute, diagnosis.ConnectionBroken, diagnosis.NotTLS,
}

var untrusted = []diagnosis.Code{
	diagnosis.BundleUnreadable, diagnosis.UnknownAuthority, diagnosis.NameMismatch, diagnosis.Expired,
}

// explains lists which findings cause which symptoms.
var explains = []struct{ causes, symptoms []diagnosis.Code }{
	{[]diagnosis.Code{
		diagnosis.WrongTarget, diagnosis.ServiceMissing, diagnosis.ServiceUnusable, diagnosis.PortMismatch,
		diagnosis.NoReadyEndpoints, diagnosis.NothingListens,
	}, symptoms},
	{append([]diagnosis.Code{diagnosis.BundleEmpty}, untrusted...), untrusted},
}

// mergeSymptoms moves the evidence of a failed call to the finding that explains it, so that one fault is one finding.
func (d *diagnostic) mergeSymptoms() {
	for _, group := range explains {
		isSymptom := func(f diagnosis.Finding) bool {
			return f.Object == d.Options.Target.String() && slices.Contains(group.symptoms, f.Code)
		}
		cause := slices.IndexFunc(d.findings, func(f diagnosis.Finding) bool {
			return f.Severity == diagnosis.Problem && slices.Contains(group.causes, f.Code) && !isSymptom(f)
		})
		if cause < 0 {
			continue
		}
		for _, f := range d.findings {
			if isSymptom(f) {
				d.findings[cause].Evidence = f.Evidence
			}
		}
		d.findings = slices.DeleteFunc(d.findings, isSymptom)
	}
}

// summarize marks the finding about the call as Healthy if there is no problem.
func (d *diagnostic) summarize() {
	if !d.through || (diagnosis.Report{Findings: d.findings}).Err() != nil {
		return
	}
	for i, f := range d.findings {
		if f.Code == diagnosis.Reached {
			d.findings[i].Code, d.findings[i].Message = diagnosis.Healthy, "all is well: "+f.Message
		}
	}
}
