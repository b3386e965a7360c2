package world

// This file is how an API server calls webhooks: from a copy of the configurations that lags, over connections that it
// keeps, to one of the replicas that its copy of the endpoints holds.

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// hook is an entry of a configuration as an API server uses it.
type hook struct {
	admissionregistrationv1.ValidatingWebhook // which has all that both kinds have in common
	mutating                                  bool
	reinvokes                                 admissionregistrationv1.ReinvocationPolicyType // of a mutating one
	version                                   string                                         // that is registered
	shadows                                   []string                                       // of the configuration: steps that are registered as shadows
}

// configurations are the kinds that hold webhooks, in the order in which an API server calls them.
var configurations = []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

// registered are the kinds that the program registers in.
var registered = append(slices.Clip(configurations), definitionKind)

// webhooksOf decodes the entries of a configuration; nil for a nil object.
func webhooksOf(object *unstructured.Unstructured) (all []hook) {
	if object == nil {
		return nil
	}
	if object.GetKind() == definitionKind {
		return conversionOf(object)
	}
	entries, _ := object.Object["webhooks"].([]any)
	for _, e := range entries {
		h := hook{mutating: object.GetKind() == configurations[0], version: object.GetAnnotations()[webhookconf.VersionAnnotation], shadows: shadowsIn(object.GetAnnotations())}
		tree, _ := e.(map[string]any)
		reinvokes, _ := tree["reinvocationPolicy"].(string)
		h.reinvokes = admissionregistrationv1.ReinvocationPolicyType(reinvokes)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &h.ValidatingWebhook) == nil {
			all = append(all, h)
		}
	}
	return all
}

// lags makes the copies of configurations later than usual.
func (s *apiServer) lags(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo()
	s.extra = by
}

// upTo returns the moment that the copies show. The caller holds mu.
func (s *apiServer) upTo() time.Time {
	if then := time.Now().Add(-s.lag - s.extra); then.After(s.shown) {
		s.shown = then
	}
	return s.shown
}

// entries returns the webhooks in the copy of this API server.
func (s *apiServer) entries(kind string) []hook {
	s.mu.Lock()
	shown := s.upTo()
	s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	object := s.w.history[kind].at(shown)
	if object == nil {
		return nil
	}
	hooks, ok := s.w.decoded[object]
	if !ok {
		hooks = webhooksOf(object)
		s.w.decoded[object] = hooks
	}
	return hooks
}

// entry returns the webhook of a step alone in the copy of this API server, if there is one and the API server answers.
func (s *apiServer) entry(kind, step string) (hook, bool) {
	entries := s.entries(kind)
	i := slices.IndexFunc(entries, func(h hook) bool { return strings.HasPrefix(h.Name, step+".") })
	if failing, frozen := s.state(); i < 0 || failing != 0 || frozen != nil {
		return hook{}, false
	}
	return entries[i], true
}

// ignores reports whether the failures of the webhook are ignored.
func (h hook) ignores() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == admissionregistrationv1.Ignore
}

// verdict is how an API server decides a request.
type verdict struct {
	object   *unstructured.Unstructured // as admitted
	denied   string                     // by a webhook, with its message
	failed   error                      // a call has failed under Fail
	warnings []string
	called   []hook
	said     []said
	late     string // a webhook that has not answered in the time that it was given
}

func (v verdict) String() string {
	switch {
	case v.denied != "":
		return "denied: " + v.denied
	case v.failed != nil:
		return "refused: " + v.failed.Error()
	}
	return "admitted"
}

// entries are the names of those that were called, and why calls have failed that is ignored.
func (v verdict) entries() string {
	var names []string
	for _, h := range v.called {
		names = append(names, h.Name)
	}
	for _, one := range v.said {
		if one.failed != nil {
			names = append(names, fmt.Sprintf("%s has failed: %v", one.Name, one.failed))
		}
	}
	return strings.Join(names, ", ")
}

// requestTime is how long an API server works on one request (kube-apiserver --request-timeout is 60 s; the webhooks of one
// request get 34 s).
const requestTime = 34 * time.Second

// admit decides a request as an API server does: all mutating webhooks one after the other, then the validating ones.
func (s *apiServer) admit(ctx context.Context, a ask) (v verdict) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	v.object = a.object
	namespace := labelsOf(a.namespace())
	switch {
	case a.resource.Resource == "namespaces":
		namespace = labels.Merge(a.subject().GetLabels(), nil)
	case a.namespace() == "": // of which namespaceSelectors say nothing
		namespace = nil
	}
	for _, kind := range configurations {
		for _, h := range s.entries(kind) {
			selects, err := h.selects(ctx, a, namespace)
			if err != nil {
				v.failed = fmt.Errorf("the matchConditions of webhook %q fail: %w", h.Name, err)
				return v
			}
			if !selects {
				continue
			}
			v.called = append(v.called, h)
			response, err := s.call(ctx, h, a)
			if err != nil {
				if errors.Is(err, context.DeadlineExceeded) {
					v.late = h.Name
				}
				if v.said = append(v.said, said{hook: h, ask: a, failed: err}); h.ignores() {
					continue
				}
				v.failed = fmt.Errorf("failed calling webhook %q: %w", h.Name, err)
				return v
			}
			v.warnings = append(v.warnings, response.Warnings...)
			v.said = append(v.said, said{hook: h, ask: a, response: response})
			if !response.Allowed {
				v.denied = fmt.Sprintf("admission webhook %q denied the request", h.Name)
				if response.Result != nil {
					v.denied += ": " + response.Result.Message
				}
				return v
			}
			if len(response.Patch) > 0 {
				if a.object, err = patched(a.object, response.Patch); err != nil {
					v.failed = err
					return v
				}
				v.object = a.object
			}
		}
	}
	return v
}

// offers has an API server admit a request. The world may be over meanwhile.
func (w *World) offers(s *apiServer, a ask) (began time.Time, v verdict, over bool) {
	ctx, cancel := w.ctx()
	defer cancel()
	began = w.begins()
	v = s.admit(ctx, a)
	return began, v, ctx.Err() != nil
}

func patched(object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	before, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatchv4.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, err
	}
	changed := &unstructured.Unstructured{}
	return changed, changed.UnmarshalJSON(after)
}

var optionsOf = map[admissionv1.Operation]string{admissionv1.Create: "Create", admissionv1.Update: "Update", admissionv1.Delete: "Delete"}

func optionsFor(o admissionv1.Operation) []byte {
	return fmt.Appendf(nil, `{"kind":"%sOptions","apiVersion":"meta.k8s.io/v1"}`, optionsOf[o])
}

// userOf is a user, as an API server describes him.
func userOf(name string) authenticationv1.UserInfo {
	user := authenticationv1.UserInfo{
		Username: name, UID: "the " + name, Groups: []string{"system:authenticated", "of " + name},
		Extra: map[string]authenticationv1.ExtraValue{"example.com/floor": {"1", "2"}},
	}
	for n := range extrasOf[name] {
		user.Extra[fmt.Sprint("example.com/floor", n)] = authenticationv1.ExtraValue{}
	}
	return user
}

// extrasOf is the number of the extras of a user, beside the usual one.
var extrasOf = map[string]int{manyExtras: 20}

// userName is the user of all requests, but for those of controllers.
const userName, manyExtras = "alice", "<bob>"

// retries is how often an API server repeats a request that is answered with Retry-After (client-go's default).
const retries = 10

// call asks one webhook.
func (s *apiServer) call(ctx context.Context, h hook, a ask) (*admissionv1.AdmissionResponse, error) {
	timeout := 10 * time.Second
	if h.TimeoutSeconds != nil {
		timeout = time.Duration(*h.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	form := s.formed(h, a)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: form.apiVersion(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(uuid.NewUUID()), Kind: a.kind, Resource: a.resource, RequestKind: &a.kind, RequestResource: &a.resource,
			Name: a.called(), Namespace: a.namespace(), Operation: a.operation, DryRun: &a.dry,
			Options: runtime.RawExtension{Raw: optionsFor(a.operation)}, UserInfo: userOf(a.by()),
		},
	}
	review.Request.SubResource, review.Request.RequestSubResource = a.subresource, a.subresource
	if a.object != nil {
		review.Request.Object = runtime.RawExtension{Object: a.object}
	}
	if a.old != nil {
		review.Request.OldObject = runtime.RawExtension{Object: a.old}
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	answered := s.w.sends(h.path(), review.Request)
	answer, err := s.post(ctx, h.ClientConfig, fmt.Sprintf("?timeout=%ds", int(timeout.Seconds())), form, form.write(body))
	if err != nil {
		answered(nil, err)
		return nil, err
	}
	response, err := form.answers(answer, review.Request)
	if err != nil {
		return nil, err
	}
	answered(response, nil)
	return response, s.w.totals(h, response)
}

// post sends a review, and again where the answer asks for that.
func (s *apiServer) post(ctx context.Context, to admissionregistrationv1.WebhookClientConfig, query string, form form, body []byte) ([]byte, error) {
	client, at, err := s.client(to)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, at+query, form.body(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		s.w.count(func(c *Counts) { c.Calls++ })
		s.w.tallied(to, func(t *tally) { t.sent++ })
		began, at := time.Now(), ""
		request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { at = c.Conn.RemoteAddr().String() }}))
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		s.w.closes(at, began, response.Close)
		if response.StatusCode == http.StatusForbidden && !response.Close {
			s.w.violate("%s is refused as a client, and its connection stays open", s.name)
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		s.w.count(func(*Counts) { s.w.watch.refusals[response.StatusCode]++ })
		switch after := response.Header.Get("Retry-After"); {
		case response.StatusCode == http.StatusOK:
			return answer, nil
		case after != "" && try < retries && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500):
			seconds, _ := time.ParseDuration(after + "s")
			select {
			case <-time.After(seconds):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		default:
			return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(answer)))
		}
	}
}

// closes looks at an answer of a replica that stops: it closes the connection, also if the call began before.
func (w *World) closes(at string, began time.Time, closes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p.address != at || closes || p.leavingAt.IsZero() {
			continue
		}
		amid := p.leavingAt.Add(2*time.Second+w.plan.Lag).Before(time.Now()) && !w.troubledSince(began, rough, slow, apart)
		if amid || p.leavingAt.Add(time.Second).Before(began) {
			w.breaks("%s is stopping, and keeps the connection of a call", p)
		}
	}
}

// client returns the client for an entry. Each caBundle and Service have their own, with connections of its own.
func (s *apiServer) client(to admissionregistrationv1.WebhookClientConfig) (*http.Client, string, error) {
	var name, at string
	switch {
	case to.URL != nil:
		parsed, err := url.Parse(*to.URL)
		if err != nil {
			return nil, "", err
		}
		name, at = parsed.Hostname(), *to.URL
	case to.Service != nil && to.Service.Path != nil:
		name = to.Service.Name + "." + to.Service.Namespace + ".svc"
		at = "https://" + name + ":443" + *to.Service.Path
	default:
		return nil, "", errors.New("the webhook names no address")
	}
	key := at + string(to.CABundle)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[key]; c != nil {
		return c, at, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(to.CABundle) && len(to.CABundle) > 0 { // with none, public CAs are trusted
		return nil, "", fmt.Errorf("unable to load root certificates: unable to parse bytes as PEM block (%d bytes)", len(to.CABundle))
	}
	c := &http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, Time: s.now, MinVersion: tls.VersionTLS12, CurvePreferences: cheapest, GetClientCertificate: s.shows}, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}}
	s.clients[key] = c
	return c, at, nil
}

// arrives connects to a replica that stops, at the end of its DrainDelay. The first request comes within the two seconds for
// which the replica waits for it.
func (w *World) arrives(p *process) {
	rng := w.stream("arrives "+p.name, 0)
	if !w.wait(w.plan.drain() - time.Duration(rng.Int64N(int64(time.Second)))) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	began, s := time.Now(), w.servers[0]
	wires, err := w.network.dial(ctx, w.controlPlane, p.address)
	if err != nil {
		return
	}
	defer func() { _ = wires.Close() }()
	conn := tls.Client(wires, &tls.Config{InsecureSkipVerify: true, CurvePreferences: cheapest, GetClientCertificate: s.shows}) //nolint:gosec // whom it calls, others check
	if conn.HandshakeContext(ctx) != nil || !w.wait(time.Duration(rng.Int64N(int64(1800*time.Millisecond)))) {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/readyz", nil)
	if err == nil && request.Write(conn) == nil {
		_ = conn.SetReadDeadline(time.Now().Add(requestTime))
		var answer *http.Response
		if answer, err = http.ReadResponse(bufio.NewReader(conn), request); err == nil {
			_ = answer.Body.Close()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, io.ErrUnexpectedEOF) && !w.troubledSince(began, rough, slow, apart) {
		w.breaks("%s is stopping, and does not answer the first request of a new connection: %v", p, err)
	}
}

func (s *apiServer) shows(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return s.identity(), nil
}

// cheapest is the key exchange that computes least, which is not what is tested here.
var cheapest = []tls.CurveID{tls.CurveP256}

// dial connects to one of the endpoints of the Service, at random as kube-proxy does.
func (s *apiServer) dial(ctx context.Context) (net.Conn, error) {
	at := s.w.service.pick()
	if at == "" && s.w.plan.URL { // the balancer asks for no readiness
		at = s.w.listening()
	}
	if at == "" {
		return nil, refused("the Service without endpoints")
	}
	conn, err := s.w.network.dial(ctx, s.w.controlPlane, at)
	if err != nil {
		return nil, err
	}
	select { // some connections say nothing at first
	case <-time.After(s.w.hesitation()):
		return conn, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
}

// reset closes all connections that are kept.
func (s *apiServer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	s.clients = map[string]*http.Client{}
}

var podResource, podKind = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}

// admits is the admission of requests to the API server itself: the canaries of the program.
func (s *apiServer) admits(ctx context.Context, r fakeapi.Request, old, object *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	if object == nil || r.Verb != "create" || r.Resource.Resource != "configmaps" {
		return object, nil, nil
	}
	kind := object.GroupVersionKind()
	a := ask{
		operation: admissionv1.Create, resource: metav1.GroupVersionResource(r.Resource), kind: metav1.GroupVersionKind(kind), object: object, old: old, dry: r.DryRun,
	}
	v := s.admit(ctx, a)
	switch {
	case v.failed != nil:
		return nil, v.warnings, apierrors.NewInternalError(v.failed)
	case v.denied != "":
		return nil, v.warnings, apierrors.NewForbidden(r.Resource.GroupResource(), a.object.GetName(), errors.New(v.denied))
	}
	return v.object, v.warnings, nil
}
