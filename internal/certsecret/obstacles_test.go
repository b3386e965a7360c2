package certsecret_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var resource = schema.GroupResource{Resource: "secrets"}

var _ = Describe("an obstacle", func() {
	namespaceGone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	namespaceGone.ErrStatus.Details.Kind = "namespaces"
	terminating := apierrors.NewForbidden(resource, name, errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	DescribeTable("is reported at once, with the remedy", func(verb string, cause error, text string) {
		c := newCluster(nil)
		if verb == "update" {
			c = newCluster(map[string][]byte{})
		}
		c.fail(verb, -1, cause)
		_, _, err := c.store().Restore(background, nil, nil)
		Expect(err).To(MatchError(cause), "wrapped")
		Expect(err).To(MatchError(And(HavePrefix("certificate Secret cf/eirini-x-setupcertificate"), ContainSubstring(text))))
		Expect(strings.Count(err.Error(), "certificate Secret")).To(Equal(1))
		Expect(c.writes()[verb]).To(BeNumerically("<=", 1), "no second attempt")
	},
		Entry("get forbidden", "get", apierrors.NewForbidden(resource, name, nil), "(needs get, create, update on secrets)"),
		Entry("create forbidden", "create", apierrors.NewForbidden(resource, name, nil), "(needs get, create, update on secrets)"),
		Entry("update forbidden", "update", apierrors.NewForbidden(resource, name, nil), "(needs get, create, update on secrets)"),
		Entry("namespace missing", "create", namespaceGone, `namespace "cf" does not exist; create it first`),
		Entry("namespace terminating", "create", terminating, `namespace "cf" is being deleted`),
		Entry("anything else", "get", errors.New("tls: handshake failure"), "tls: handshake failure"),
	)

	DescribeTable("passes, and is waited for", func(cause error) {
		c := newCluster(nil)
		c.fail("get", 3, cause)
		_, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Created))
	},
		Entry("overload", apierrors.NewTooManyRequests("later", 0)),
		Entry("timeout", apierrors.NewServerTimeout(resource, "get", 0)),
		Entry("no etcd", apierrors.NewInternalError(errors.New("etcdserver: leader changed"))),
		Entry("a proxy that is slow", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}),
		Entry("a connection that broke", &url.Error{Op: "Get", URL: "https://x", Err: io.ErrUnexpectedEOF}),
		Entry("API server restarting", &url.Error{Op: "Get", URL: "https://x", Err: syscall.ECONNREFUSED}),
	)

	It("reads again when a Secret vanishes between read and write", func() {
		c := newCluster(map[string][]byte{})
		c.fail("update", 1, apierrors.NewNotFound(resource, name))
		_, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Repaired))
	})

	It("ends with the context", func() {
		c := newCluster(nil)
		ctx, cancel := context.WithCancelCause(background)
		c.fail("create", -1, apierrors.NewAlreadyExists(resource, name))
		cancel(errors.New("shutting down"))
		_, _, err := c.store().Restore(ctx, nil, nil)
		Expect(err).To(MatchError(ContainSubstring("shutting down")))
		Expect(c.writes()["create"]).To(Equal(1))
	})

	It("reports that an immutable Secret must be deleted", func() {
		c := newCluster(map[string][]byte{"tls.crt": []byte("x")}, setImmutable)
		_, _, err := c.store().Restore(background, nil, nil)
		Expect(err).To(MatchError(certsecret.ErrImmutable))
		Expect(err).To(MatchError(ContainSubstring("kubectl --namespace cf delete secret eirini-x-setupcertificate")))
		Expect(err).To(MatchError(ContainSubstring("tls.key is missing")))
		Expect(c.writes()).To(BeEmpty())
	})

	It("uses an immutable Secret whose CA is usable", func() {
		c := newCluster(eirinixData(), setImmutable)
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Usable(now)).To(Succeed())
		Expect(c.store().RecordRegistered(background, state.Bundle())).To(MatchError(certsecret.ErrImmutable))
		Expect(c.writes()).To(BeEmpty())
	})
})

func setImmutable(s *corev1.Secret) {
	yes := true
	s.Immutable = &yes
}

func TestEnsureGivesUpAfterSomeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(nil)
		c.fail("get", -1, apierrors.NewServiceUnavailable("starting"))
		start := time.Now()
		_, _, err := c.store().Restore(t.Context(), nil, nil)
		g.Expect(err).To(MatchError(ContainSubstring("gave up after")))
		g.Expect(err).To(MatchError(apierrors.IsServiceUnavailable, "IsServiceUnavailable"))
		g.Expect(time.Since(start)).To(BeNumerically("~", 8*time.Second, 6*time.Second))

		c = newCluster(nil)
		c.fail("get", -1, &url.Error{Op: "Get", URL: "https://x", Err: context.DeadlineExceeded})
		start = time.Now()
		_, _, err = c.store().Restore(t.Context(), nil, nil)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(start)).To(BeZero(), "it has waited for one answer, and not for twenty")
	})
}
