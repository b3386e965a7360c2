package eirinix_test

// This file specifies metrics as their readers get them, and what a Manager at rest costs.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// tokenOf makes a ServiceAccount and returns a token of it.
func tokenOf(ctx context.Context, namespace, name string) (string, error) {
	accounts := clients().CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// bindTo gives a ServiceAccount the rights of a ClusterRole.
func bindTo(ctx context.Context, clusterRole, namespace, name string) error {
	_, err := clients().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
	}, metav1.CreateOptions{})
	return err
}

// mayScrape fails while a ServiceAccount may not read metrics.
func mayScrape(ctx context.Context, namespace, name string) error {
	user := "system:serviceaccount:" + namespace + ":" + name
	answer, err := clients().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"},
	}}, metav1.CreateOptions{})
	if err == nil && !answer.Status.Allowed {
		err = fmt.Errorf("%s may not yet read metrics", user)
	}
	return err
}

// scrape reads metrics as soon as their port is open, which may be after Ready. Without roots it trusts every certificate.
func scrape(ctx context.Context, url, token string, roots *x509.CertPool) (status int, body string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, InsecureSkipVerify: roots == nil}} //nolint:gosec // a spec's
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	err = until(ctx, func() error {
		resp, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		status, body = resp.StatusCode, string(text)
		return err
	})
	return status, body, err
}

// scraped is the life of a pod whose metrics are read with the rights that the manifests have for that, and by no others.
func scraped(ctx context.Context, p *play, config *rest.Config) error {
	return p.running(ctx, p.manager(config), func(ctx context.Context) error {
		token, unbound := Must(tokenOf(ctx, p.own, "prometheus")), Must(tokenOf(ctx, p.own, "another"))
		if err := errors.Join(bindTo(ctx, "eirinix:"+p.pods+":metrics", p.own, "prometheus"), p.called(ctx),
			until(ctx, func() error { return mayScrape(ctx, p.own, "prometheus") })); err != nil {
			return err
		}
		for caller, expected := range map[string]int{token: http.StatusOK, unbound: http.StatusForbidden, "no.such.token": http.StatusUnauthorized} {
			status, body, err := scrape(ctx, "https://127.0.0.1"+p.options.MetricsBindAddress+"/metrics", caller, nil)
			if err != nil {
				return err
			} else if status != expected || strings.Contains(body, "eirinix_") != (status == http.StatusOK) {
				return fmt.Errorf("%d and not %d: %s", status, expected, body)
			}
		}
		return nil
	})
}

var _ = It("Metrics are served with a certificate while the program waits for its own, and then with that", Label("api-server"), func(ctx SpecContext) {
	namespace, port := newNamespace(ctx), FreePort()
	registering := urlOptions(namespace)
	registering.Port, registering.ListenAddress = FreePort(), ""
	serving, url := registering, fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	serving.MetricsBindAddress = fmt.Sprint(":", port)
	serving.RegisterWebHook, serving.SetupCertificate = new(false), new(false)
	m := addEnvManager(serving)
	startManager(ctx, m)
	status, body, err := scrape(ctx, url, "", nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusUnauthorized), body)
	Expect(m.Ready()).NotTo(BeClosed())

	Expect(addEnvManager(registering).RegisterExtensions()).To(Succeed())
	Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
	roots, secret := x509.NewCertPool(), Must(clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{}))
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	status, body, err = scrape(ctx, url, "", roots)
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusUnauthorized), body)
}, SpecTimeout(3*patience))

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees the memory that finalizers kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

var _ = Describe("A Manager at rest", Label("api-server"), func() {
	It("costs little beside others in its process", Serial, func(ctx SpecContext) {
		run := func() {
			options := urlOptions(newNamespace(ctx))
			options.Logger = zap.NewNop().Sugar()
			runManager(ctx, addEnvManager(options))
		}
		run() // has what the process has once
		const more, kibibyte = 5, 1 << 10
		goroutines, memory := runtime.NumGoroutine(), heap()
		for range more {
			run()
		}
		Eventually(func() int { return (runtime.NumGoroutine() - goroutines) / more }).WithTimeout(patience).Should(BeNumerically("<=", 30))
		Eventually(func() int64 { return (heap() - memory) / more / kibibyte }).WithTimeout(patience).Should(BeNumerically("<=", 300))
		AddReportEntry(fmt.Sprintf("each further one: %d goroutines, %d KiB", (runtime.NumGoroutine()-goroutines)/more, (heap()-memory)/more/kibibyte), ReportEntryVisibilityAlways)
	}, SpecTimeout(5*time.Minute))

	It("writes nothing", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		var mu sync.Mutex
		var writes []string // a review of rights and a dry run are none
		for range 2 {
			options := urlOptions(namespace)
			options.Port = 8443 // one address, as replicas have
			options.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if uri := r.URL.RequestURI(); r.Method != http.MethodGet && !strings.Contains(uri, "reviews") && !strings.Contains(uri, "dryRun=All") {
					mu.Lock()
					writes = append(writes, r.Method+" "+uri)
					mu.Unlock()
				}
				return next.RoundTrip(r)
			})
			runManager(ctx, addEnvManager(options))
		}
		written := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(writes)
		}
		rest := 5 * time.Second
		if os.Getenv("EIRINIX_SOAK") != "" {
			rest = 70 * time.Second // more than the minute after which every object is checked again
		}
		before := written()
		Eventually(func() []string {
			last := before
			before = written()
			return before[len(last):]
		}).WithPolling(rest).WithTimeout(10 * rest).Should(BeEmpty())
	}, SpecTimeout(15*time.Minute))
})
