package metricsauth

// This file plays requests for metrics, with an API server that reviews their tokens as the spec says.

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestMetricsauth(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/metricsauth")
}

var _ = Describe("Requests for metrics", func() {
	const good = "good-token"
	var (
		clients           *fake.Clientset
		identified, asked atomic.Int32 // reviews
		mayRead           atomic.Bool
		lastAsked         authorizationv1.SubjectAccessReviewSpec
		now               time.Time
		logs              *observer.ObservedLogs
		r                 *reviewer
		handler           http.Handler
	)
	BeforeEach(func() {
		identified.Store(0)
		asked.Store(0)
		mayRead.Store(true)
		clients, now = fake.NewClientset(), time.Now()
		clients.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			identified.Add(1)
			review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
			if review.Spec.Token == good {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
					Username: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"p-0"}},
				}}
			}
			return true, review, nil
		})
		clients.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
			lastAsked = review.Spec
			review.Status.Allowed = mayRead.Load()
			return true, review, nil
		})
		core, observed := observer.New(zap.DebugLevel)
		logs = observed
		r = newReviewer(clients, zapr.NewLogger(zap.New(core)))
		r.now = func() time.Time { return now }
		var err error
		handler, err = r.filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
		Expect(err).NotTo(HaveOccurred())
	})

	send := func(ctx context.Context, method, authorization, path string) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		return w
	}
	get := func(authorization string) *httptest.ResponseRecorder {
		return send(context.Background(), http.MethodGet, authorization, "/metrics")
	}
	fails := func(resource string, err error) {
		clients.PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	answers := func(status int, body string) OmegaMatcher {
		return And(HaveField("Code", status), HaveField("Body.String()", ContainSubstring(body)))
	}

	It("pass with a token that may read them, after the API server was asked with all that is known of the caller", func() {
		Expect(get("Bearer " + good)).To(answers(200, "metrics"))
		Expect(lastAsked).To(Equal(authorizationv1.SubjectAccessReviewSpec{
			User: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"p-0"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}))
		Expect(logs.Len()).To(BeZero())
	})

	DescribeTable("are not authenticated, and the API server is not asked,",
		func(authorization string) {
			w := get(authorization)
			Expect(w).To(answers(401, "Unauthorized"))
			Expect(w.Header().Get("WWW-Authenticate")).To(Equal("Bearer"))
			Expect(identified.Load()).To(BeZero())
		},
		Entry("without a token", ""),
		Entry("with an empty one", "Bearer "),
		Entry("with another scheme", "Basic "+good),
		Entry("with a scheme alone", "Bearer"),
	)

	It("are refused with a bad token, and without the right", func() {
		Expect(get("Bearer bad")).To(answers(401, "Unauthorized"))
		Expect(asked.Load()).To(BeZero())
		mayRead.Store(false)
		Expect(get("bearer " + good)).To(answers(403, "Authorization denied for user prometheus"))
		Expect(logs.FilterFieldKey("reason").All()).To(ConsistOf(
			HaveField("ContextMap()", HaveKeyWithValue("reason", "its token is not valid")),
			HaveField("ContextMap()", HaveKeyWithValue("reason", "prometheus may not get the non-resource URL /metrics; grant it that with a ClusterRole")),
		))
	})

	DescribeTable("fail, with the remedy in the log, where the program may not ask",
		func(resource, body string) {
			fails(resource, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right")))
			Expect(get("Bearer " + good)).To(answers(500, body))
			Expect(logs.All()).To(ConsistOf(HaveField("ContextMap()", HaveKeyWithValue("reason", And(
				ContainSubstring("grant it create on tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io"), HaveSuffix("no right"))))))
		},
		Entry("who calls", "tokenreviews", "Authentication failed"),
		Entry("the rights of the caller", "subjectaccessreviews", "Authorization for user prometheus failed"),
	)

	It("are judged anew after a minute, and after ten seconds where they were refused", func() {
		Expect(get("Bearer " + good)).To(answers(200, ""))
		mayRead.Store(false)
		now = now.Add(59 * time.Second)
		Expect(get("Bearer " + good)).To(answers(200, ""))
		now = now.Add(time.Second)
		Expect(get("Bearer " + good)).To(answers(403, ""))
		mayRead.Store(true)
		now = now.Add(9 * time.Second)
		Expect(get("Bearer " + good)).To(answers(403, ""))
		Expect(asked.Load()).To(BeEquivalentTo(2))
		now = now.Add(time.Second)
		Expect(get("Bearer " + good)).To(answers(200, ""))
	})

	It("to other paths, and with other methods, have decisions of their own", func() {
		Expect(get("Bearer " + good)).To(answers(200, ""))
		mayRead.Store(false)
		Expect(send(context.Background(), http.MethodGet, "Bearer "+good, "/debug")).To(answers(403, ""))
		Expect(lastAsked.NonResourceAttributes.Path).To(Equal("/debug"))
		Expect(send(context.Background(), http.MethodPut, "Bearer "+good, "/metrics")).To(answers(403, ""))
		Expect(lastAsked.NonResourceAttributes.Verb).To(Equal("put"))
	})

	It("with many bad tokens take up bounded memory, and push no good one out", func() {
		Expect(get("Bearer " + good)).To(answers(200, ""))
		for i := range 3 * maxDecisions {
			Expect(get(fmt.Sprint("Bearer bad-", i))).To(answers(401, ""))
		}
		Expect(len(r.refused)).To(And(BeNumerically(">", 0), BeNumerically("<=", maxDecisions)))
		Expect(get("Bearer " + good)).To(answers(200, ""))
		Expect(asked.Load()).To(BeEquivalentTo(1))
	})

	It("leave no token in the log or in memory, and one line a minute for each status", func() {
		for range 3 {
			get("Bearer secret-token")
			get("")
			now = now.Add(10 * time.Second)
		}
		Expect(logs.Len()).To(Equal(1))
		now = now.Add(30 * time.Second)
		get("Bearer secret-token")
		Expect(logs.Len()).To(Equal(2))
		fails("tokenreviews", errors.New("no answer"))
		get("Bearer another-secret-token")
		Expect(logs.Len()).To(Equal(3))
		Expect(fmt.Sprint(logs.All())).NotTo(ContainSubstring("secret-token"))
		Expect(r.refused).To(HaveKey(key{token: sha256.Sum256([]byte("secret-token")), request: sha256.Sum256([]byte("get /metrics"))}))
	})

	It("have the API server review few at a time; others wait, no longer than their caller", func(ctx SpecContext) {
		release := make(chan struct{})
		clients.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-release
			return false, nil, nil
		})
		var all sync.WaitGroup
		// The fake handles one request at a time, so the count is that of the places taken.
		for i := range reviewsAtOnce {
			all.Go(func() { send(ctx, http.MethodGet, fmt.Sprint("Bearer bad-", i), "/metrics") })
		}
		Eventually(func() int { return len(r.places) }).Should(Equal(reviewsAtOnce))
		short, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("the caller went away"))
		Expect(send(short, http.MethodGet, "Bearer "+good, "/metrics")).To(answers(500, "Authentication failed"))
		Expect(logs.Len()).To(BeZero()) // there is nothing to do about it
		r.timeout = time.Millisecond
		Expect(send(ctx, http.MethodGet, "Bearer "+good, "/metrics")).To(answers(500, "Authentication failed"))
		Expect(logs.All()).To(ConsistOf(HaveField("ContextMap()", HaveKeyWithValue("reason", ContainSubstring("8 requests are being reviewed already: context deadline exceeded")))))
		close(release)
		all.Wait()
		Expect(r.places).To(BeEmpty())
		r.timeout = reviewTimeout
		Expect(send(ctx, http.MethodGet, "Bearer "+good, "/metrics")).To(answers(200, "metrics"))
	}, SpecTimeout(time.Minute))

	It("are answered under the program's own certificate as soon as there is one", func() {
		var own *tls.Certificate
		options, config := &metricsserver.Options{}, &tls.Config{}
		Protect(options, func(*tls.ClientHelloInfo) *tls.Certificate { return own }, logr.Discard())
		options.TLSOpts[0](config)
		Expect(config.GetConfigForClient(nil)).To(BeNil(), "the server's own configuration stands")
		own = &tls.Certificate{OCSPStaple: []byte("own")}
		Expect(config.GetConfigForClient(nil)).To(HaveField("Certificates", ConsistOf(*own)))
	})
})

var _ = DescribeTable("An address is exposed, or not:",
	func(address string, exposed bool) { Expect(Exposed(address)).To(Equal(exposed)) },
	Entry("of all interfaces", ":9090", true),
	Entry("unspecified", "0.0.0.0:9090", true),
	Entry("by name", "metrics.example.org:9090", true),
	Entry("that cannot be read", "9090", true),
	Entry("of loopback", "127.0.0.1:9090", false),
	Entry("of loopback, IPv6", "[::1]:9090", false),
	Entry("of loopback, mapped to IPv6", "[::ffff:127.0.0.1]:9090", false),
	Entry("called localhost", "localhost:9090", false),
	Entry("switched off", "0", false),
	Entry("not given", "", false),
)
