// Specs of waiting, and of the errors against which it helps.
package wait_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

func status(code int, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message}}
}

func requested(err error) error {
	return &url.Error{Op: "Get", URL: "https://api.example.org", Err: err}
}

func TestWait(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/wait")
}

var secrets = corev1.Resource("secrets")

var _ = DescribeTable("Waiting helps",
	func(err error, helps bool) {
		Expect(wait.Transient(err)).To(Equal(helps))
		Expect(wait.Transient(fmt.Errorf("the Secret: %w", err))).To(Equal(helps), "also with more said")
	},
	Entry("against another client that was faster", apierrors.NewConflict(secrets, "one", errors.New("modified")), true),
	Entry("against an object that another client has created", apierrors.NewAlreadyExists(secrets, "one"), true),
	Entry("against a single 503", apierrors.NewServiceUnavailable("starting"), true),
	Entry("against a failure inside", apierrors.NewInternalError(errors.New("etcd has no leader")), true),
	Entry("against 504", apierrors.NewTimeoutError("slow", 1), true),
	Entry("against 502 of a proxy", status(http.StatusBadGateway, "bad gateway"), true),
	Entry("against 408", status(http.StatusRequestTimeout, "slow"), true),
	Entry("against 429", apierrors.NewTooManyRequests("busy", 1), true),
	Entry("against a port that nothing listens on", requested(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true),
	Entry("against a connection that broke", requested(io.ErrUnexpectedEOF), true),
	Entry("against a connection that its server has closed", errors.New("http2: server sent GOAWAY and closed the connection"), true),
	Entry("against a reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, true),
	Entry("against a name that does not resolve yet", requested(&net.DNSError{Err: "no such host", IsNotFound: true}), true),
	Entry("against a deadline", context.DeadlineExceeded, true),
	Entry("not against a right that is missing", apierrors.NewForbidden(secrets, "one", errors.New("no")), false),
	Entry("not against an object that is not valid", apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "one", nil), false),
	Entry("not against 401", apierrors.NewUnauthorized("who?"), false),
	Entry("not against 404", apierrors.NewNotFound(secrets, "one"), false),
	Entry("not against 413", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), false),
	Entry("not against an object that is too large for etcd", apierrors.NewInternalError(errors.New("etcdserver: request is too large")), false),
	Entry("not against one that is too large for its client", status(http.StatusInternalServerError, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2404133 vs. 2097152)"), false),
	Entry("not against a server that cannot be trusted", requested(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false),
	Entry("not against a request that was given up", requested(context.Canceled), false),
	Entry("not against other errors", errors.New("other"), false),
)

func TestRetryWaitsLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var lines []string
		log := funcr.New(func(_, s string) { lines = append(lines, s) }, funcr.Options{})
		var at []time.Time
		err := wait.Retry(t.Context(), log, "the list of pods", func(context.Context) error {
			if at = append(at, time.Now()); len(at) < 9 {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		for i, delay := range []time.Duration{500, 1000, 2000, 4000, 8000, 15000, 15000, 15000} {
			delay *= time.Millisecond
			g.Expect(at[i+1].Sub(at[i])).To(And(BeNumerically(">=", delay), BeNumerically("<=", delay+delay/5)))
		}
		g.Expect(lines).To(HaveLen(8))
		g.Expect(lines).To(HaveEach(And(ContainSubstring("the list of pods"), ContainSubstring("starting"))))
	})
}

func TestRetryEndsWhenWaitingDoesNotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		n := 0
		refused := apierrors.NewForbidden(secrets, "one", errors.New("no"))
		g.Expect(wait.Retry(t.Context(), logr.Discard(), "it", func(context.Context) error { n++; return refused })).To(MatchError(refused))
		g.Expect(n).To(Equal(1))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		down := apierrors.NewServiceUnavailable("down")
		start := time.Now()
		g.Expect(wait.Retry(ctx, logr.Discard(), "it", func(context.Context) error { return down })).To(MatchError(down), "the reason, not the deadline")
		g.Expect(time.Since(start)).To(Equal(time.Minute))
	})
}

func TestSleepEndsWithTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		g.Expect(wait.Sleep(ctx, time.Second)).To(Succeed())
		g.Expect(time.Since(start)).To(Equal(time.Second))
		cause := errors.New("the program stops")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		g.Expect(wait.Sleep(ctx, time.Hour)).To(MatchError(cause))
		g.Expect(time.Since(start)).To(Equal(2 * time.Second))
	})
}

var _ = It("has jitter of up to a fifth", func() {
	lowest, highest := time.Hour, time.Duration(0)
	for range 10000 {
		d := wait.Jittered(time.Second)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	Expect(lowest).To(And(BeNumerically(">=", time.Second), BeNumerically("<", 1010*time.Millisecond)))
	Expect(highest).To(And(BeNumerically("<=", 1200*time.Millisecond), BeNumerically(">", 1190*time.Millisecond)))
	Expect(wait.Jittered(0)).To(BeZero())
})

var _ = DescribeTable("Only a missing object comes back by itself",
	func(kind string, vanished, namespace bool) {
		err := apierrors.NewNotFound(schema.GroupResource{Resource: kind}, "one")
		err.ErrStatus.Details.Kind = kind
		for _, err := range []error{err, fmt.Errorf("the Secret: %w", err)} {
			Expect(wait.Vanished(err)).To(Equal(vanished))
			Expect(wait.NamespaceMissing(err)).To(Equal(namespace))
		}
	},
	Entry("a Secret", "secrets", true, false),
	Entry("its namespace", "namespaces", false, true),
	Entry("its namespace, to an older API server", "namespace", false, true),
)
