package eirinix_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// outage is a connection that can be cut, and counts the attempts in the meantime.
type outage struct {
	mu     sync.Mutex
	down   bool
	tries  []time.Time
	bodies map[io.Closer]bool
}

func (o *outage) pass(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if o.refuses() {
		return nil, syscall.ECONNREFUSED
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies[resp.Body] = true
	return resp, nil
}

func (o *outage) refuses() bool {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down {
		o.note()
	}
	return down
}

func (o *outage) note() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tries = append(o.tries, time.Now())
}

// begin cuts open watches too.
func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = true
	for body := range o.bodies {
		_ = body.Close()
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = false
}

// late returns the attempts, as times after the first one. Those that come with it do not count: there are several watches.
func (o *outage) late() (all []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, try := range o.tries {
		if after := try.Sub(o.tries[0]); after > 500*time.Millisecond {
			all = append(all, after)
		}
	}
	return all
}

var _ = Describe("While something is away", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("the API server is tried less and less often, and missed changes are made up for after it", func(ctx SpecContext) {
		api := &outage{bodies: map[io.Closer]bool{}}
		o := urlOptions(namespace)
		o.RestConfig = between(api.pass)
		m := addEnvManager(o)
		runManager(ctx, m)
		api.begin()
		c := configuration(ctx, m)
		c.Webhooks[0].ClientConfig.CABundle = nil
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Eventually(api.late).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		Expect(api.late()[2]).To(BeNumerically(">", 5*time.Second), "one attempt after 1 s, one after 2 s more, one after 4 s more")

		api.end()
		Eventually(func() []byte { return configuration(ctx, m).Webhooks[0].ClientConfig.CABundle }).WithTimeout(2 * patience).ShouldNot(BeEmpty())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(5*patience))

	It("a Secret that may not be watched is read less and less often", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Port, o.ListenAddress, o.RegisterWebHook = FreePort(), "", new(false)
		o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{namespace + "-setupcertificate"},
		}}, nil)
		reads := &outage{bodies: map[io.Closer]bool{}}
		o.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if isRead(r, namespace+"-setupcertificate") {
					reads.note()
				}
				return next.RoundTrip(r)
			})
		})
		m := addEnvManager(o)
		startManager(ctx, m)
		Eventually(reads.late).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		Expect(reads.late()[2]).To(BeNumerically(">", 5*time.Second))
	}, SpecTimeout(3*patience))

	It("a rotation that is not allowed leaves one Event, which counts", func(ctx SpecContext) {
		registering := addEnvManager(urlOptionsAt(namespace, 8443))
		Expect(registering.RegisterExtensions()).To(Succeed())
		DeferCleanup(registering.Unregister)
		o := urlOptionsAt(namespace, 8443)
		o.SetupCertificate = new(false) // the rotation is for another program
		m := addEnvManager(o)
		runManager(ctx, m)

		var told []corev1.Event
		Eventually(func(g Gomega) {
			_, err := clients().CoreV1().Secrets(namespace).Patch(ctx, namespace+"-setupcertificate", types.MergePatchType, // and it is looked at again
				fmt.Appendf(nil, `{"metadata":{"annotations":{"eirinix.cloudfoundry.org/rotate-ca":"now","n":"%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			all, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=CARotationBlocked"})
			g.Expect(err).NotTo(HaveOccurred())
			told = all.Items
			g.Expect(told).NotTo(BeEmpty())
			g.Expect(len(told) > 1 || told[0].Series != nil && told[0].Series.Count > 1).To(BeTrue(), "it goes on")
		}).WithContext(ctx).WithPolling(time.Second).WithTimeout(4 * patience).Should(Succeed())
		Expect(told).To(HaveLen(1))
	}, SpecTimeout(6*patience))
})

// urlOptionsAt are options for URL mode with a port that API servers call; nothing listens there.
func urlOptionsAt(namespace string, port int32) eirinix.ManagerOptions {
	o := urlOptions(namespace)
	o.Port = port
	return o
}
