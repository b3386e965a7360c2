package diagnose

// This file runs a diagnosis along the path of a call, and combines its findings.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
)

// diagnosis is one run and its findings so far.
type diagnosis struct {
	Config
	findings []Finding
	lacking  []Right

	looked       bool            // all of our configurations could be read
	live         map[string]hook // the registered entries, by their paths
	untrusted    bool            // a caBundle does not trust the serving certificate of this process, which has been reported
	through      bool            // the API server's call came through
	inconclusive string          // why the canary proves nothing
	blind        bool            // it will prove nothing later either: it is not wanted, or must not be sent
	caller       string          // the process that found the path broken
	backend      backend
	namespaces   map[string]labelsOf // the namespaces that were read

	slow func() // called once if the API server takes long to answer the canary; nil for no call
}

func newDiagnosis(c Config) *diagnosis {
	return &diagnosis{Config: c, live: map[string]hook{}, namespaces: map[string]labelsOf{}, caller: "the API server"}
}

// Run checks everything between the API server and this process, and reports every fault. It writes nothing. It takes
// some milliseconds if all is well, and as long as the timeouts if something does not answer. When ctx ends, it returns
// its findings so far.
func Run(ctx context.Context, c Config) Report {
	d := newDiagnosis(c)
	if d.look(ctx) {
		d.versions()
		if d.Others {
			for _, c := range d.Calls {
				d.add(Finding{Code: Calls, Severity: Note, Object: d.Options.Target.String(), Message: c})
			}
			d.others(ctx)
		}
		d.checkSubject(ctx)
	}
	return d.report()
}

// look follows the path of a call. It returns false if the API server itself is unreachable.
func (d *diagnosis) look(ctx context.Context) bool {
	if !d.apiServer(ctx) {
		return false
	}
	d.listening(ctx)
	d.registered(ctx)
	d.selected(ctx)
	d.path(ctx)
	return true
}

// report completes the findings and returns them in order.
func (d *diagnosis) report() Report {
	d.sayLacking()
	d.mergeSymptoms()
	d.summarize()
	return sorted(d.findings)
}

func (d *diagnosis) add(f Finding) { d.findings = append(d.findings, f) }

// within bounds one check.
func within[T any](ctx context.Context, timeout time.Duration, look func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return look(ctx)
}

// noteMissingRight records a check that failed because a right is missing, or for another reason.
func (d *diagnosis) noteMissingRight(err error, right Right) {
	if apierrors.IsForbidden(err) {
		if !slices.Contains(d.lacking, right) {
			d.lacking = append(d.lacking, right)
		}
		return
	}
	d.add(Finding{
		Code: CannotLook, Severity: Warning, Object: right.String(), Evidence: err.Error(),
		Message: "the API server did not answer when it was asked to " + right.String(), Remedy: "try again",
	})
}

func (d *diagnosis) sayLacking() {
	if len(d.lacking) == 0 {
		return
	}
	d.add(Finding{
		Code: CannotLook, Severity: Note, Object: "RBAC", Rights: d.lacking,
		Message: "some things could not be looked at",
		Remedy:  "grant " + sentence(d.lacking) + " to have them looked at",
	})
}

// apiServer reports whether the API server answers. It also checks the API server's version.
func (d *diagnosis) apiServer(ctx context.Context) bool {
	answer, err := within(ctx, d.timeout(), func(ctx context.Context) (version.Info, error) {
		var info version.Info
		body, err := d.Clients.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
		if err == nil {
			info, err = parseVersion(body)
		}
		return info, err
	})
	switch {
	case apierrors.IsForbidden(err): // it does answer
		return true
	case err != nil:
		d.add(Finding{
			Code: APIServerUnreachable, Severity: Problem, Object: "API server", Evidence: err.Error(),
			Message: "this process gets no usable answer from the API server", Remedy: "check the kubeconfig and the network between this process and the API server",
		})
		return false
	}
	if old(answer) {
		d.add(tooOld(answer))
	}
	return true
}

// wantsMinor is the first minor version whose stable API includes matchConditions.
const wantsMinor = 30

func old(info version.Info) bool {
	major, majorErr := strconv.Atoi(info.Major)
	minor, minorErr := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	return majorErr == nil && minorErr == nil && (major < 1 || major == 1 && minor < wantsMinor)
}

func tooOld(info version.Info) Finding {
	return Finding{
		Code: TooOld, Severity: Problem, Object: "API server",
		Message: fmt.Sprintf("the API server is %s, which may leave out the matchConditions of webhooks, so that they are called for more than they should", info.GitVersion),
		Remedy:  fmt.Sprintf("upgrade the cluster to v1.%d or later", wantsMinor),
	}
}

// path makes the API server call, and looks for the reason if the call does not come through.
func (d *diagnosis) path(ctx context.Context) {
	var came call
	d.inconclusive = d.noCanary()
	if d.inconclusive == "" {
		came = d.awaitCanary(ctx)
		d.through = came.through
	}
	if !d.through {
		d.lookBehind(ctx)
	}
	if d.inconclusive == "" {
		d.judgeCanary(ctx, came)
	}
	if d.through {
		return
	}
	d.judgeService()
	if d.inconclusive != "" && !d.hasProblem() {
		d.fromHere(ctx)
	}
	d.judgePorts()
}

// noCanary returns the reason why no canary is sent. It is empty if one is sent.
func (d *diagnosis) noCanary() string {
	if d.Canary.Namespace == "" {
		d.blind = true
		return "no canary was asked for"
	}
	if _, live := d.live[d.Canary.Entry().Path]; d.looked && !live {
		return "the canary is not registered"
	}
	return ""
}

func (d *diagnosis) hasProblem() bool {
	return slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Severity == Problem })
}

// symptoms are findings whose cause another finding may name.
var symptoms = []Code{ConnectionRefused, TimedOut, NoRoute, ConnectionBroken, NotTLS}

// explains lists which findings cause which symptoms.
var explains = []struct{ causes, symptoms []Code }{
	{[]Code{WrongTarget, ServiceMissing, ServiceUnusable, PortMismatch, NoReadyEndpoints, NothingListens}, symptoms},
	{[]Code{BundleEmpty, BundleUnreadable, UnknownAuthority, NameMismatch, Expired}, []Code{BundleUnreadable, UnknownAuthority, NameMismatch, Expired}},
}

// mergeSymptoms moves the evidence of a failed call to the finding that explains it, so that one fault is one finding.
func (d *diagnosis) mergeSymptoms() {
	call := d.Options.Target.String()
	for _, group := range explains {
		cause := slices.IndexFunc(d.findings, func(f Finding) bool {
			isCall := f.Object == call && slices.Contains(group.symptoms, f.Code)
			return f.Severity == Problem && slices.Contains(group.causes, f.Code) && !isCall
		})
		if cause < 0 {
			continue
		}
		because := &d.findings[cause]
		var others []Finding
		for i, f := range d.findings {
			if i != cause && f.Object == call && slices.Contains(group.symptoms, f.Code) {
				because.Evidence = f.Evidence
			}
		}
		for i, f := range d.findings {
			if i == cause || f.Object != call || !slices.Contains(group.symptoms, f.Code) {
				others = append(others, f)
			}
		}
		d.findings = others
	}
}

// summarize marks the finding about the call as Well if there is no problem.
func (d *diagnosis) summarize() {
	if !d.through || d.hasProblem() {
		return
	}
	for i := range d.findings {
		if d.findings[i].Code == Reached {
			d.findings[i].Code = Well
			d.findings[i].Message = "all is well: " + d.findings[i].Message
		}
	}
}
