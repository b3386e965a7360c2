package diagnose

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

	looked       bool            // our configurations could be read, all of them
	live         map[string]hook // the entries that are registered, by their paths
	untrusted    bool            // a caBundle does not trust the certificate that is served here, which has been said
	through      bool            // the API server's call came through
	inconclusive string          // why the canary shows nothing
	blind        bool            // and will show nothing later: it is not wanted, or may not be sent
	caller       string          // the one that found the path broken
	backend      backend
	namespaces   map[string]labelsOf // that were read

	slow func() // called once if the API server takes long to answer the canary; nil does without
}

func newDiagnosis(c Config) *diagnosis {
	return &diagnosis{Config: c, live: map[string]hook{}, namespaces: map[string]labelsOf{}, caller: "the API server"}
}

// Run looks at everything between the API server and this process, and reports every fault. It writes nothing. It takes
// some milliseconds where all is well, and as long as timeouts take where something does not answer; when ctx ends it
// returns its findings so far.
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

// look follows the way of a call, and returns false where the API server itself is out of reach.
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

// report sums up.
func (d *diagnosis) report() Report {
	d.sayLacking()
	d.fold()
	d.well()
	return sorted(d.findings)
}

func (d *diagnosis) add(f Finding) { d.findings = append(d.findings, f) }

// within bounds one look.
func within[T any](ctx context.Context, timeout time.Duration, look func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return look(ctx)
}

// lack notes a look that failed, for lack of a right or for another reason.
func (d *diagnosis) lack(err error, right Right) {
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

// apiServer is true if the API server answers. It judges its version too.
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

// wantsMinor is the minor version since which matchConditions are part of the stable API.
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

// path lets the API server call, and looks for the reason where the call does not come through.
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

// noCanary is the reason why none is sent; empty if one is.
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

// symptoms have a cause that another finding may name.
var symptoms = []Code{ConnectionRefused, TimedOut, NoRoute, ConnectionBroken, NotTLS}

// explains says which findings bring about which symptoms.
var explains = []struct{ causes, symptoms []Code }{
	{[]Code{WrongTarget, ServiceMissing, ServiceUnusable, PortMismatch, NoReadyEndpoints, NothingListens}, symptoms},
	{[]Code{BundleEmpty, BundleUnreadable, UnknownAuthority, NameMismatch, Expired}, []Code{BundleUnreadable, UnknownAuthority, NameMismatch, Expired}},
}

// fold hands the evidence of a failed call to the finding that explains it, so that one fault is one finding.
func (d *diagnosis) fold() {
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

// well says so if it is.
func (d *diagnosis) well() {
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
