package world

// This file is the versions of the program, and their steps.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// release is a version of the program.
type release struct {
	name     string
	steps    []string
	isolated map[string]bool
	modes    map[string]eirinix.Mode // that it declares for steps which judge
	reads    bool
	kinds    bool // the policy is of a kind that comes and goes
	wide     bool // two steps read policies
	sets     bool // three steps are about replica sets
	shadow   bool
	managed  bool // a step asks for the controller-runtime manager, which begins with that
	records  bool // one step is about Secrets; steps that read wait for those who ask for another kind
	vaults   bool // and reads some
	audited  bool // it is audited
	converts bool
	thirds   bool // converts the third version of shops
	issued   bool // takes its certificates from an issuer
	signed   bool // which is a signer
	judges   bool // changes nothing, so that a configuration is empty
	parted   bool // half of the versions lack a step beside those with Ignore
	comes    bool // one step is about a kind that comes later
	crashes  bool // its replicas end before they are ready

	over                chan struct{} // of the world
	boxes               []boxStep
	burdened, witnessed *atomic.Int64 // count runs of the steps in Shadow, in all versions: of one on large pods
}

func (r release) has(step string) bool { return step == lenient || slices.Contains(r.steps, step) }

// plain are the steps that change and judge pods when they are created. Others are reader and lenient.
var plain = []string{"a", "b", "c", "d"}

const (
	reader  = "reads" // adds to a pod which policy it has seen
	ghost   = "ghost" // hangs in Shadow on large pods
	none    = "none"  // where there is no policy
	lenient = "spare" // judges changes of pods, with failurePolicy Ignore
)

// releases draws versions. All have step a.
func releases(rng *rand.Rand, p Plan) (all []release) {
	burdened, witnessed := &atomic.Int64{}, &atomic.Int64{}
	for i := range p.Versions {
		r := release{name: fmt.Sprint("v", i+1), isolated: map[string]bool{}, reads: p.Reads, kinds: p.Kinds, wide: p.Wide, sets: p.Sets, shadow: p.Shadow, managed: p.managed(), vaults: p.vaults(), audited: p.audits(), records: p.Records && !p.Reads, converts: p.Converts, comes: p.comes(), issued: p.Issued && (rng.IntN(2) == 0 || p.Split), burdened: burdened, witnessed: witnessed}
		for s, step := range plain {
			if s > 0 && rng.IntN(5) < 2 {
				continue
			}
			r.steps = append(r.steps, step)
			r.isolated[step] = rng.IntN(2) == 0
		}
		if p.Reads {
			r.steps = append(r.steps, reader)
		}
		r.judges = p.Judges && i%2 == 1
		r.signed = p.Signed && r.issued && i%2 == 0
		all = append(all, r)
	}
	return all
}

// denyLabel names the steps that are to deny an object, and slowLabel the time that step a takes for it. failLabel has a step
// with failurePolicy Ignore fail after it has annotated the object with halfway, and hangs has it wait for ever. longLabel makes
// step a change so much that the answer does not fit into a packet.
const denyLabel, slowLabel, failLabel, longLabel, halfway, hangs = "deny", "slow", "fail", "long", "halfway", "hangs"

// stuck has the same step wait for stuckFor, whatever its context says.
const stuck, stuckFor = "stuck", 50 * time.Second

// sticks waits for that.
func (r release) sticks() {
	select {
	case <-time.After(stuckFor):
	case <-r.over:
	}
}

func annotate(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}

// add gives the Manager the steps of a version.
func (r release) add(m *eirinix.ExtensionManager) error {
	var errs []error
	for _, s := range r.boxes {
		errs = append(errs, s.add(m))
	}
	if r.wide {
		errs = append(errs, ages(m, r))
	}
	if r.reads {
		errs = append(errs, m.AddExtension(eirinix.Mutation[*corev1.Pod]{
			ID:       reader,
			Settings: eirinix.Settings{Isolated: true, Reads: []eirinix.Read{r.policies(true)}},
			Apply: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				echo(c, reader, nil, pod)
				policy := noPolicy(r.kinds)
				switch err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: policyName}, policy); {
				case apierrors.IsNotFound(err): // it relies on Required
					annotate(pod, "ran-"+reader, none)
					return nil
				case err != nil:
					return err
				}
				annotate(pod, "ran-"+reader, policy.GetLabels()[generationLabel])
				return nil
			},
		}))
	}
	if r.wide {
		errs = append(errs, looks(m, r))
	}
	if r.sets {
		errs = append(errs, addSets(m), addGuard(m), addCensus(m))
	}
	if r.records {
		errs = append(errs, addVault(m, r.vaults, r.audited))
	}
	if r.comes {
		errs = append(errs, addComer(m))
	}
	if r.converts {
		errs = append(errs, addConversion(m, r.thirds, r.over))
	}
	if r.shadow {
		errs = append(errs, addWitness(m, r.witnessed), m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: ghost, Settings: eirinix.Settings{Isolated: true, Mode: eirinix.ModeShadow},
			Create: func(ctx context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				if pod.Annotations[ghost] != "" {
					r.burdened.Add(1)
				}
				if len(pod.Spec.InitContainers) > 0 {
					<-ctx.Done()
				}
				return nil
			},
		}))
	}
	mutates := func(step eirinix.Mutation[*corev1.Pod]) {
		if !r.judges {
			errs = append(errs, m.AddExtension(step))
		}
	}
	mutates(eirinix.Mutation[*corev1.Pod]{
		ID: lenient + "-sets", Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore},
		Apply: func(ctx context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			annotate(pod, halfway, "yes")
			switch pod.Labels[failLabel] {
			case "":
				return nil
			case hangs:
				<-ctx.Done()
			case stuck:
				r.sticks()
			}
			return errors.New("it is to fail")
		},
	})
	errs = append(errs, judgesChanges(m))
	for _, step := range r.steps {
		if step == reader {
			continue
		}
		settings := eirinix.Settings{Isolated: r.isolated[step]}
		mutates(eirinix.Mutation[*corev1.Pod]{ID: step + "-sets", Settings: settings, Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			echo(c, step+"-sets", nil, pod)
			if changes(step, r.name, pod); pod.Labels[longLabel] != "" && step == "a" {
				annotate(pod, longLabel, strings.Repeat("long ", 5000))
			}
			return nil
		}})
		settings.Mode = r.modes[step]
		errs = append(errs,
			m.AddExtension(eirinix.Validation[*corev1.Pod]{ID: step, Settings: settings, Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				if step == "a" {
					if err := passes(ctx, pod); err != nil {
						return err
					}
					if err := r.runs(c); err != nil {
						return err
					}
				}
				echo(c, step, nil, pod)
				if strings.HasPrefix(c.UserInfo.Username, audits) && (c.DryRun == nil || !*c.DryRun) {
					return errors.New("an audit is no dry run")
				}
				deny := among(pod.Labels[denyLabel], step)
				scribbles(pod)
				switch {
				case deny && step == "a":
					return eirinix.Deny("%s denies", step)
				case deny:
					err := eirinix.Invalid(field.ErrorList{field.Forbidden(field.NewPath(step), step+" denies")})
					if step == "b" {
						err = errors.Join(errors.New("seen on the way"), err)
					}
					return err
				}
				return nil
			}}),
		)
	}
	return errors.Join(errs...)
}
