package webhookconf_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// clock is the one on which all processes of a spec agree.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// writer is one that starts now. As in a Manager, the caBundle comes with each write, and every entry has its set.
func (c *clock) writer(o webhookconf.Options, steps ...webhookconf.Step) webhookconf.Writer {
	o.CABundle = nil
	w := webhookconf.Writer{Options: o, Entries: webhookconf.Group(steps), Sets: map[string]string{}, Started: c.now, Now: c.Now}
	for _, e := range w.Entries {
		var names []string
		for _, i := range e.Steps {
			names = append(names, steps[i].Name)
		}
		w.Sets[e.Name] = strings.Join(names, "+")
	}
	return w
}

// start gives a process that registers mutating steps from now on.
func (c *clock) start(in *cluster, steps ...webhookconf.Step) *process {
	mutating, _ := processes(c.writer(urlOptions(), steps...), in)
	return mutating
}

// process is one that registers steps of one kind.
type process struct {
	webhookconf.Registrar
	bundle string   // what it wants to be trusted
	asked  int      // how often it was asked for that
	live   []string // the caBundles that it was told of then
}

// processes gives those that register both kinds.
func processes(w webhookconf.Writer, in kubernetes.Interface) (mutating, validating *process) {
	both := w.Registrars(in.AdmissionregistrationV1(), owner)
	return &process{Registrar: both[0], bundle: "bundle"}, &process{Registrar: both[1], bundle: "bundle"}
}

func (p *process) trusts(live [][]byte) ([]byte, error) {
	p.asked++
	p.live = texts(live)
	return []byte(p.bundle), nil
}

func (p *process) register(ctx context.Context) webhookconf.Written {
	GinkgoHelper()
	written, err := p.Register(ctx, p.trusts)
	Expect(err).NotTo(HaveOccurred())
	return written
}

func (p *process) survey(ctx context.Context) webhookconf.Standing {
	GinkgoHelper()
	s, err := p.Survey(ctx)
	Expect(err).NotTo(HaveOccurred())
	return s
}

func texts(all [][]byte) (texts []string) {
	for _, b := range all {
		texts = append(texts, string(b))
	}
	return texts
}

// What happens to what is registered.

func blank(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = nil
	}
}

func weaken(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	m.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
}
