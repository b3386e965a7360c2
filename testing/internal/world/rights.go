package world

// This file is the rights of the program, and answers that requests get instead of the right one.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// rights are those of the program's service account.
type rights struct {
	mu     sync.Mutex
	denied map[string]int // "verb resource", and how often it was taken and not given back
	sick   int            // the status of answers about policies; 0 for the right one, -1 for none

	cured    time.Time // when sick was 0 again
	unserved bool      // the kind of policies is not served
}

func (r *rights) sicken(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sick, r.cured = status, time.Now()
}

// ill reports whether requests for policies get no right answer, or did not a moment ago.
func (r *rights) ill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sick != 0 || time.Since(r.cured) < cluster.Rewatched
}

func (r *rights) set(verb, resource string, denied bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied == nil {
		r.denied = map[string]int{}
	}
	right := verb + " " + resource
	if denied {
		r.denied[right]++
	} else if r.denied[right]--; r.denied[right] == 0 {
		delete(r.denied, right)
	}
}

// servesHeader is in the requests of replicas that have no right to touch configurations.
const servesHeader = "World-Serves"

func (r *rights) deny(verb, resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied[verb+" "+resource] > 0 || r.denied[everything+" "+everything] > 0 && !strings.HasPrefix(resource, "selfsubject") && resource != "events"
}

var requestInfo = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// check answers a request that is refused, and a review of a right that the program has not. It reports whether it did.
func (r *rights) check(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	serves := req.Header.Get(servesHeader) != ""
	none, sick := len(r.denied) == 0 && !serves, r.sick
	r.mu.Unlock()
	if sick != 0 && (strings.HasSuffix(req.URL.Path, "/configmaps") || strings.HasSuffix(req.URL.Path, "/networkpolicies")) && strings.Contains(req.URL.RawQuery, policyName) {
		if sick > 0 {
			writeJSON(w, sick, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(sick)})
		} else {
			<-req.Context().Done()
		}
		return true
	}
	info, err := requestInfo.NewRequestInfo(req)
	if err == nil && info.Resource == "selfsubjectrulesreviews" {
		review := authorizationv1.SelfSubjectRulesReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"}}
		review.Status.Incomplete = !none
		if none {
			all := []string{"*"}
			review.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}
		}
		writeJSON(w, http.StatusCreated, review)
		return true
	}
	if none || err != nil || !info.IsResourceRequest {
		return false
	}
	denied := func(verb, resource string) bool {
		return r.deny(verb, resource) || serves && strings.HasSuffix(resource, "webhookconfigurations")
	}
	if denied(info.Verb, info.Resource) {
		resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		status := apierrors.NewForbidden(resource, info.Name, errors.New("the right was taken away")).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		writeJSON(w, http.StatusForbidden, status)
		return true
	}
	if info.Resource != "selfsubjectaccessreviews" {
		return false
	}
	body, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var review authorizationv1.SelfSubjectAccessReview
	if err != nil || json.Unmarshal(body, &review) != nil || review.Spec.ResourceAttributes == nil {
		return false
	}
	if !denied(review.Spec.ResourceAttributes.Verb, review.Spec.ResourceAttributes.Resource) {
		return false
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	writeJSON(w, http.StatusCreated, review)
	return true
}

func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // to memory
}
