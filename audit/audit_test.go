package audit

// This file plays the command with audits of the spec's own.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

func TestAudit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "audit")
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// found is a finding about a pod.
func found(result Result, name, message string) Finding {
	return Finding{
		Step: "no-root", Mode: eirinix.ModeDeny, Result: result, Operation: admissionv1.Create, Message: message,
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: pods, Namespace: "default", Name: name, UID: "1",
	}
}

// session is one run of the command with an audit that the spec plays.
type session struct {
	stdout, stderr bytes.Buffer
	options        Options
	err            error
}

// play runs the command with these arguments, and with another output if there is one.
func play(ctx context.Context, args []string, audit func(Options) (Summary, error), output ...io.Writer) *session {
	s := &session{}
	m := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	s.err = Command(ctx, m, args, func(o *CommandOptions) {
		o.Stdout, o.Stderr = &s.stdout, &s.stderr
		for _, w := range output {
			o.Stdout = w
		}
		o.Run = func(_ context.Context, options Options) (Summary, error) {
			s.options = options
			return audit(options)
		}
	})
	return s
}

// finding plays an audit with these findings, each of which is counted.
func finding(all ...Finding) func(Options) (Summary, error) {
	return func(o Options) (Summary, error) {
		s := Summary{Objects: 7, Asked: map[string]int{"no-root": 7}, Findings: map[string]map[Result]int{}}
		for _, f := range all {
			if s.Findings[f.Step] == nil {
				s.Findings[f.Step] = map[Result]int{}
			}
			s.Findings[f.Step][f.Result]++
			if err := o.Finding(f); err != nil {
				return s, err
			}
		}
		return s, nil
	}
}

var _ = Describe("The command audit", func() {
	drift := found(Drift, "web", "")
	drift.Paths = []string{"/metadata/labels", "/spec/priority"}
	unknown := Finding{Step: "drain", Result: Unknown, Message: "DELETE is not played"}

	It("prints a line for each finding, and a table", func(ctx SpecContext) {
		s := play(ctx, nil, finding(found(Denied, "web", "web would run as root"), drift, unknown))
		Expect(s.err).To(MatchError("7 objects: 1 denied"))
		Expect(errors.As(s.err, new(*FindingsError))).To(BeTrue())
		Expect(s.stderr.String()).To(BeEmpty())
		Expect(s.stdout.String()).To(Equal(`denied   default/web (Pod)  no-root: web would run as root
drift    default/web (Pod)  no-root: would change /metadata/labels, /spec/priority
unknown  drain: DELETE is not played

  asked  denied  failed  drift  unknown  extension
      0       0       0      0        1  drain
      7       1       0      1        0  no-root
7 objects were audited
`))
	})

	Describe("with gaps", func() {
		gaps := []Gap{
			{Step: "secrets", Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: "default", Reason: "secrets is forbidden", Remedy: "grant it"},
			{Step: "drain", Objects: 3, Reason: "it failed", Remedy: "mend it"},
		}
		incomplete := func(all ...Finding) func(Options) (Summary, error) {
			return func(o Options) (Summary, error) {
				s, err := finding(all...)(o)
				s.Gaps = gaps
				return s, errors.Join(err, fmt.Errorf("eirinix: Audit: %w", &IncompleteError{Gaps: gaps}))
			}
		}

		It("fails as incomplete, whatever it has found", func(ctx SpecContext) {
			s := play(ctx, nil, incomplete())
			Expect(s.err).To(MatchError("audit: eirinix: Audit: the audit is not complete: step secrets about secrets in the namespace default: secrets is forbidden; grant it; and 1 more gaps"))
			Expect(s.stdout.String()).To(HaveSuffix("7 objects were audited; the audit is not complete: it has 2 gaps\n"))
			Expect(ExitCode(s.err)).To(Equal(2))
			Expect(errors.As(s.err, new(*FindingsError))).To(BeFalse())
			s = play(ctx, nil, incomplete(found(Denied, "web", "no")))
			Expect(errors.As(s.err, new(*FindingsError))).To(BeTrue())
			Expect(errors.As(s.err, new(*IncompleteError))).To(BeTrue())
			Expect(ExitCode(s.err)).To(Equal(2))
		})

		It("writes them as JSON, and as notifications of SARIF", func(ctx SpecContext) {
			var document struct {
				Summary struct{ Gaps []map[string]any }
				Error   string
				Runs    []struct {
					Invocations []struct {
						ExecutionSuccessful        bool
						ToolExecutionNotifications []struct {
							Level   string
							Message sarifText
						}
					}
				}
			}
			Expect(json.Unmarshal(play(ctx, []string{"-o", "json"}, incomplete()).stdout.Bytes(), &document)).To(Succeed())
			Expect(document.Summary.Gaps).To(HaveExactElements(
				Equal(map[string]any{"step": "secrets", "resource": "secrets", "namespace": "default", "reason": "secrets is forbidden", "remedy": "grant it"}),
				Equal(map[string]any{"step": "drain", "objects": 3., "reason": "it failed", "remedy": "mend it"}),
			))
			Expect(document.Error).To(ContainSubstring("the audit is not complete"))
			Expect(json.Unmarshal(play(ctx, []string{"-o", "sarif"}, incomplete()).stdout.Bytes(), &document)).To(Succeed())
			invocation := document.Runs[0].Invocations[0]
			Expect(invocation.ExecutionSuccessful).To(BeFalse())
			Expect(invocation.ToolExecutionNotifications).To(HaveExactElements(
				And(HaveField("Level", "error"), HaveField("Message.Text", "step secrets about secrets in the namespace default: secrets is forbidden; grant it")),
				HaveField("Message.Text", "step drain: it failed; mend it"),
			))
		})
	})

	DescribeTable("tells clean, violated and other ends apart by the exit code", func(ctx SpecContext, code int, message, flag string, all ...Finding) {
		s := play(ctx, strings.Fields(flag), finding(all...))
		Expect(ExitCode(s.err)).To(Equal(code))
		if message == "" {
			Expect(s.err).NotTo(HaveOccurred())
		} else {
			Expect(s.err).To(MatchError(ContainSubstring(message)))
		}
	},
		Entry("denied", 1, "7 objects: 1 denied", "", found(Denied, "x", "")),
		Entry("failed", 1, "7 objects: 1 failed", "", found(Failed, "x", "")),
		Entry("drift, and an unknown answer", 0, "", "", drift, unknown),
		Entry("drift that counts", 1, "7 objects: 1 drifted", "-drift", drift),
		Entry("an unknown answer where drift counts", 0, "", "-drift", unknown),
		Entry("a flag that is none", 2, "-x", "-x"),
	)

	It("prints notes beside the results", func(ctx SpecContext) {
		s := play(ctx, []string{"-o", "json"}, func(Options) (Summary, error) {
			return Summary{Notes: []string{"no kind for reports"}}, nil
		})
		Expect(s.err).NotTo(HaveOccurred())
		Expect(s.stderr.String()).To(Equal("audit: no kind for reports\n"))
		Expect(json.Valid(s.stdout.Bytes())).To(BeTrue())
	})

	It("lists at most 20 findings of a step and result, or all", func(ctx SpecContext) {
		var all []Finding
		for i := range 25 {
			all = append(all, found(Denied, fmt.Sprintf("web-%d", i), "no"))
		}
		s := play(ctx, nil, finding(all...))
		Expect(strings.Count(s.stdout.String(), "default/web-")).To(Equal(20))
		Expect(s.stdout.String()).To(ContainSubstring("no-root: 5 more denied; -all lists them\n"))
		s = play(ctx, []string{"-all"}, finding(all...))
		Expect(strings.Count(s.stdout.String(), "default/web-")).To(Equal(25))
		Expect(s.stdout.String()).NotTo(ContainSubstring("more"))
	})

	It("shows no control characters of objects and messages", func(ctx SpecContext) {
		hostile := found(Denied, "we\x1b[31mb", "one\ntwo\r\x07\u202e\u2028 \x9b")
		hostile.Namespace, hostile.Step = "a\nb", "st\x1bep"
		hostile.Kind.Kind = "Po\x00d"
		text := play(ctx, nil, finding(hostile)).stdout.String()
		Expect(strings.Count(text, "\n")).To(Equal(6))
		Expect(text).To(MatchRegexp(`^[ -~\n\x{FFFD}]*$`))
		for _, format := range []string{"json", "sarif"} {
			Expect(json.Valid(play(ctx, []string{"-o", format}, finding(hostile)).stdout.Bytes())).To(BeTrue())
		}
	})

	It("writes JSON, also of an audit that did not finish", func(ctx SpecContext) {
		run := finding(found(Denied, "web", "no"), drift, unknown)
		read := func(s *session) (document struct {
			Findings []jsonFinding
			Summary  struct {
				Objects int
				Steps   []jsonStep
			}
			Error string
		},
		) {
			GinkgoHelper()
			Expect(json.Unmarshal(s.stdout.Bytes(), &document)).To(Succeed(), s.stdout.String())
			return document
		}
		s := play(ctx, []string{"-o", "json"}, run)
		Expect(s.err).To(HaveOccurred())
		document := read(s)
		Expect(document.Findings).To(HaveLen(3))
		Expect(document.Findings[0]).To(Equal(jsonFinding{
			Result: "denied", Step: "no-root", Mode: "Deny", Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods",
			Namespace: "default", Name: "web", UID: "1", Message: "no",
		}))
		Expect(document.Findings[1].Paths).To(Equal(drift.Paths))
		Expect(document.Summary.Steps).To(Equal([]jsonStep{{Step: "drain", Unknown: 1}, {Step: "no-root", Asked: 7, Denied: 1, Drift: 1}}))
		Expect(document.Error).To(BeEmpty())

		cut := play(ctx, []string{"-o", "json"}, func(o Options) (Summary, error) {
			summary, _ := run(o)
			return summary, context.Canceled
		})
		Expect(cut.err).To(MatchError(context.Canceled))
		Expect(read(cut).Error).To(Equal("context canceled"))
		Expect(read(cut).Findings).To(HaveLen(3))
		Expect(read(play(ctx, []string{"-o", "json"}, finding())).Findings).To(BeEmpty())
	})

	It("writes SARIF for code scanning", func(ctx SpecContext) {
		grouped := found(Failed, "a b", "oops")
		grouped.Resource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		another := unknown
		another.Message = "pods/exec is not played"
		run := finding(found(Denied, "web", "no"), drift, unknown, grouped, another)
		s := play(ctx, []string{"-o", "sarif"}, run)
		var document struct {
			Version string
			Runs    []struct {
				Tool struct {
					Driver struct {
						Name  string
						Rules []sarifRule
					}
				}
				Results     []sarifResult
				Invocations []struct{ ExecutionSuccessful bool }
			}
		}
		Expect(json.Unmarshal(s.stdout.Bytes(), &document)).To(Succeed(), s.stdout.String())
		Expect(document.Version).To(Equal("2.1.0"))
		Expect(document.Runs).To(HaveLen(1))
		log := document.Runs[0]
		Expect(log.Invocations).To(HaveLen(1))
		Expect(log.Invocations[0].ExecutionSuccessful).To(BeTrue())
		var rules, levels, uris, fingerprints []string
		for _, r := range log.Tool.Driver.Rules {
			rules = append(rules, r.ID)
		}
		for _, r := range log.Results {
			Expect(rules).To(ContainElement(r.RuleID))
			Expect(r.Message.Text).NotTo(BeEmpty())
			levels = append(levels, r.Level)
			for _, l := range r.Locations {
				uris = append(uris, l.PhysicalLocation.ArtifactLocation.URI)
			}
			fingerprints = append(fingerprints, r.PartialFingerprints["object/v1"])
		}
		Expect(rules).To(Equal([]string{"drain", "no-root"}))
		Expect(levels).To(Equal([]string{"error", "warning", "note", "error", "note"}))
		Expect(uris).To(Equal([]string{"api/v1/namespaces/default/pods/web", "api/v1/namespaces/default/pods/web", "apis/apps/v1/namespaces/default/deployments/a%20b"}))
		Expect(fingerprints).To(HaveEach(HaveLen(32)))
		Expect(slices.Compact(slices.Sorted(slices.Values(fingerprints)))).To(HaveLen(5), "each finding has its own")
		Expect(play(ctx, []string{"-o", "sarif"}, run).stdout.String()).To(Equal(s.stdout.String()))
	})

	It("writes a finding when it is found, and ends with the error of an output that is closed", func(ctx SpecContext) {
		for _, format := range []string{"text", "json", "sarif"} {
			var out bytes.Buffer
			play(ctx, []string{"-o", format}, func(o Options) (Summary, error) {
				Expect(o.Finding(found(Denied, "web", ""))).To(Succeed())
				Expect(out.String()).To(ContainSubstring("web"), format)
				return Summary{}, nil
			}, &out)
			closed := play(ctx, []string{"-o", format}, finding(found(Denied, "web", "")), broken{})
			Expect(closed.err).To(MatchError(syscall.EPIPE), format)
		}
	})

	It("passes the flags on", func(ctx SpecContext) {
		o := play(ctx, []string{"-n", "shop", "-step", "a", "-step", "b", "-page-size", "7", "-pages-per-second", "0.5", "-step-requests-per-second", "3", "-policy-reports"}, finding()).options
		Expect(o).To(And(
			HaveField("Namespace", "shop"), HaveField("Steps", []string{"a", "b"}), HaveField("PageSize", 7),
			HaveField("PagesPerSecond", 0.5), HaveField("StepRequestsPerSecond", 3.), HaveField("PolicyReports", true),
		))
	})

	DescribeTable("names the flag that cannot be used", func(ctx SpecContext, message string, args ...string) {
		s := play(ctx, args, func(Options) (Summary, error) {
			Fail("it began")
			return Summary{}, nil
		})
		Expect(s.err).To(MatchError("audit: " + message))
		Expect(s.stdout.String()).To(BeEmpty())
	},
		Entry(nil, `-o is "yaml"; give text, json, sarif`, "-o", "yaml"),
		Entry(nil, `-color is "pink"; give auto, always, never`, "-color", "pink"),
		Entry(nil, `-page-size is 0; give 1 or more`, "-page-size", "0"),
		Entry(nil, `-pages-per-second is NaN; give more than 0`, "-pages-per-second", "NaN"),
		Entry(nil, `-step-requests-per-second is 0; give more than 0`, "-step-requests-per-second", "0"),
		Entry(nil, `"default" is not a flag; -h lists the flags`, "default"),
		Entry(nil, `flag provided but not defined: -x; -h lists the flags`, "-x"),
	)

	It("colours results where -color says so, and shows no progress with -q", func(ctx SpecContext) {
		run := func(o Options) (Summary, error) {
			o.Progress(Progress{Resource: pods, Listed: 500, Remaining: -1, Objects: 500})
			return finding(unknown)(o)
		}
		s := play(ctx, []string{"-color", "always", "-v"}, run)
		Expect(s.stdout.String()).To(HavePrefix("\x1b[36munknown\x1b[0m"))
		Expect(s.stderr.String()).To(ContainSubstring("pods: 500"))
		s = play(ctx, []string{"-color", "never", "-q", "-v"}, run)
		Expect(s.stdout.String()).To(HavePrefix("unknown  drain"))
		Expect(s.stderr.String()).To(BeEmpty())
		Expect(play(ctx, nil, run).stdout.String()).NotTo(ContainSubstring("\x1b"), "no terminal")
	})

	It("prints help", func(ctx SpecContext) {
		s := play(ctx, []string{"-h"}, nil)
		Expect(s.err).NotTo(HaveOccurred())
		Expect(s.stderr.String()).To(And(HavePrefix("Usage: audit"), ContainSubstring("-policy-reports")))
	})

	It("shows progress on a terminal in one line, which findings do not touch", func() {
		var out bytes.Buffer
		p := &progress{w: &out, terminal: true}
		p.show(Progress{Resource: pods, Listed: 500, Remaining: 1500, Objects: 700, Findings: 1})
		p.show(Progress{Resource: pods, Listed: 1000, Remaining: -1, Objects: 1200})
		p.hide()
		p.hide()
		Expect(out.String()).To(Equal("\r\x1b[Kpods: 500 of about 2000; 700 objects, 1 finding\r\x1b[Kpods: 1000; 1200 objects, 0 findings\r\x1b[K"))
	})

	It("shows progress without a terminal only with -v, each 10,000 objects", func() {
		var out bytes.Buffer
		for _, p := range []*progress{{w: &out}, {w: &out, verbose: true}, {w: &out, terminal: true, off: true}} {
			for n := 0; n <= 25_000; n += 500 {
				p.show(Progress{Resource: pods, Listed: n, Remaining: -1, Objects: n})
			}
			p.hide()
		}
		Expect(strings.Count(out.String(), "\n")).To(Equal(3))
		Expect(out.String()).NotTo(ContainSubstring("\r"))
	})
})

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

var _ = It("Conditions are those of the API server, and an error if they cannot be compiled, evaluated or read", func(ctx SpecContext) {
	match := func(expression, object string) (bool, error) {
		conditions, err := conditionsOf([]admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}})
		if err != nil {
			return false, err
		}
		return conditions(ctx, &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", Object: k8sruntime.RawExtension{Raw: []byte(object)},
		})
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`
	Expect(match(`object.metadata.name == "web" && request.namespace == "default" && request.operation == "CREATE" && oldObject == null`, pod)).To(BeTrue())
	Expect(match(`object.metadata.name == "db"`, pod)).To(BeFalse())
	for _, broken := range [][]string{{"object.spec =", pod, "correct Settings.Conditions"}, {"object.missing == 1", pod, "no such key"}, {"true", "{", "unexpected"}} {
		_, err := match(broken[0], broken[1])
		Expect(err).To(MatchError(ContainSubstring(broken[2])))
	}
})
