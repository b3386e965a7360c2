// Package metricsauth protects a metrics server. It serves over TLS and asks the API server about each caller, with a
// TokenReview and a SubjectAccessReview. It answers as controller-runtime's metrics/filters does. That package cannot
// be used here because it links the API server's own code.
package metricsauth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// Exposed reports whether other machines can reach an address to listen on ("host:port"). They cannot reach a loopback
// address, "localhost", or an address that is switched off ("" or "0").
func Exposed(address string) bool {
	if address == "" || address == "0" {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !ip.IsLoopback())
}

// Protect makes a metrics server require a token. own returns the serving certificate, or nil while there is none.
// Callers then get the metrics server's self-signed certificate.
func Protect(o *metricsserver.Options, own func(*tls.ClientHelloInfo) *tls.Certificate, log logr.Logger) {
	o.SecureServing = true
	o.FilterProvider = func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		clients, err := cluster.NewClientsWith(config, client)
		if err != nil {
			return nil, err
		}
		return newReviewer(clients, log).filter, nil
	}
	o.TLSOpts = append(o.TLSOpts, func(c *tls.Config) {
		c.NextProtos = []string{"http/1.1"} // HTTP/2 has a history of floods, and a scrape gains nothing from it
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			certificate := own(hello)
			if certificate == nil {
				return nil, nil //nolint:nilnil // the configuration of the server stands
			}
			return &tls.Config{NextProtos: c.NextProtos, Certificates: []tls.Certificate{*certificate}}, nil
		}
	})
}

const (
	// grantedFor is how long a granted request is cached. A caller can keep its access for that long after it loses the
	// right.
	grantedFor = time.Minute

	// refusedFor is how long a refusal is cached. A caller can have to wait for that long after it gets the right.
	refusedFor = 10 * time.Second

	// maxDecisions bounds the cached decisions of each kind. A cluster has a handful of scrapers.
	maxDecisions = 256

	// reviewsAtOnce bounds the requests under review at once, and with them the load that callers put on the API
	// server.
	reviewsAtOnce = 8

	// reviewTimeout bounds both reviews of a request, including the wait for a slot.
	reviewTimeout = 10 * time.Second
)

// reviewer decides which requests pass. It is safe for concurrent use.
type reviewer struct {
	clients cluster.Clients
	log     logr.Logger
	now     func() time.Time
	timeout time.Duration // for the reviews of a request
	places  chan struct{} // one element for each request under review

	logs lograte.Limiter

	mu               sync.Mutex // guards the rest
	granted, refused map[key]decision
}

// key identifies a request. It holds hashes, so that no token stays in memory.
type key struct{ token, request [sha256.Size]byte }

// decision is the decision on a request: http.StatusOK lets it pass.
type decision struct {
	status int
	text   string // of the HTTP response
	why    string // for the log
	until  time.Time
}

func newReviewer(clients cluster.Clients, log logr.Logger) *reviewer {
	r := &reviewer{
		clients: clients, log: log, now: time.Now, timeout: reviewTimeout, places: make(chan struct{}, reviewsAtOnce),
		granted: map[key]decision{}, refused: map[key]decision{},
	}
	r.logs.Now = func() time.Time { return r.now() }
	return r
}

// filter passes requests with a valid token and the right to the path. It answers 401 without a valid token, 403
// without the right, and 500 if the API server could not be asked.
func (r *reviewer) filter(_ logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		v := r.decide(req)
		if v.status == http.StatusOK {
			next.ServeHTTP(w, req)
			return
		}
		if req.Context().Err() == nil {
			r.report(v, req.RemoteAddr)
		}
		if v.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, v.text, v.status)
	}), nil
}

// decide returns the decision on a request, either cached or new. Failures are not cached.
func (r *reviewer) decide(req *http.Request) decision {
	scheme, token, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return decision{status: http.StatusUnauthorized, text: "Unauthorized", why: "it has no bearer token"}
	}
	verb, path := strings.ToLower(req.Method), req.URL.Path
	k := key{token: sha256.Sum256([]byte(token)), request: sha256.Sum256([]byte(verb + " " + path))}
	if v, ok := r.recall(k); ok {
		return v
	}
	ctx, cancel := context.WithTimeout(req.Context(), r.timeout)
	defer cancel()
	v := r.review(ctx, token, verb, path)
	if v.status != http.StatusInternalServerError {
		r.remember(k, v)
	}
	return v
}

// review asks the API server, with a TokenReview and a SubjectAccessReview.
func (r *reviewer) review(ctx context.Context, token, verb, path string) decision {
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return failed("Authentication failed", fmt.Errorf("%d requests are being reviewed already: %w", reviewsAtOnce, context.Cause(ctx)))
	}
	caller, err := r.clients.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return failed("Authentication failed", err)
	}
	user := caller.Status.User
	if !caller.Status.Authenticated {
		return decision{status: http.StatusUnauthorized, text: "Unauthorized", why: "its token is not valid"}
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	access, err := r.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return failed(fmt.Sprintf("Authorization for user %s failed", user.Username), err)
	}
	if !access.Status.Allowed {
		return decision{
			status: http.StatusForbidden, text: "Authorization denied for user " + user.Username,
			why: fmt.Sprintf("%s may not %s the non-resource URL %s; grant it that with a ClusterRole", user.Username, verb, path),
		}
	}
	return decision{status: http.StatusOK}
}

// failed returns the decision for a request about which the API server could not be asked.
func failed(text string, err error) decision {
	why := "the API server could not be asked about the caller: " + err.Error()
	if apierrors.IsForbidden(err) {
		why = "this program may not ask about callers; grant it create on tokenreviews.authentication.k8s.io and " +
			"subjectaccessreviews.authorization.k8s.io, as manifests.Of does, or set ManagerOptions.MetricsUnauthenticated: " + err.Error()
	}
	return decision{status: http.StatusInternalServerError, text: text, why: why}
}

func (r *reviewer) recall(k key) (decision, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range []map[key]decision{r.granted, r.refused} {
		if v, ok := known[k]; ok && r.now().Before(v.until) {
			return v, true
		}
	}
	return decision{}, false
}

// remember caches a decision. Refusals have a cache of their own, so that bad tokens do not evict good ones.
func (r *reviewer) remember(k key, v decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, lasts := r.refused, refusedFor
	if v.status == http.StatusOK {
		known, lasts = r.granted, grantedFor
	}
	if len(known) >= maxDecisions {
		clear(known)
	}
	v.until = r.now().Add(lasts)
	known[k] = v
}

// report logs a refusal, once a minute for each status. Any client that reaches the port can cause refusals.
func (r *reviewer) report(d decision, from string) {
	if withheld, ok := r.logs.Allow(http.StatusText(d.status), ""); ok {
		r.log.Info("refused a request for metrics", "status", d.status, "reason", d.why, "from", from, "moreSinceLast", withheld)
	}
}
