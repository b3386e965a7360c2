package diagnose

// This file finds registrations that call this program and that no program keeps in order, such as those of an earlier
// fingerprint.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkOrphans reports the webhooks of other configurations that call this program's address. They fail for everything,
// because no path or certificate fits, or run its steps a second time.
func (d *diagnostic) checkOrphans(ctx context.Context) {
	all := d.allHooks(ctx)
	d.isOrphan = make(map[string]bool, len(all))
	var ours []hook // those of one configuration
	for i, h := range all {
		if d.orphaned(ctx, h) {
			d.isOrphan[h.String()] = true
			ours = append(ours, h)
		}
		if i+1 < len(all) && all[i+1].configuration == h.configuration {
			continue
		}
		if len(ours) > 0 {
			whole := !slices.ContainsFunc(all, func(o hook) bool { return o.configuration == h.configuration && !d.isOrphan[o.String()] })
			d.add(d.orphans(ours, whole))
		}
		ours = nil
	}
}

// orphans returns the finding for the orphans of one configuration. whole means that it holds nothing else.
func (d *diagnostic) orphans(all []hook, whole bool) diagnosis.Finding {
	names, h := list.Of(all, func(o hook) string { return o.Name }), all[0]
	f := problem(diagnosis.Orphaned, h.configuration.String(),
		fmt.Sprintf("%s calls this program at %s for %s, but is not its configuration (%s): these calls fail, or run its steps again, "+
			"as after a change of ManagerOptions.OperatorFingerprint", h.configuration, d.Options.Target, listed(names), h.kind.ConfigurationName(d.Options.Fingerprint)),
		"once no replica with that fingerprint runs, "+h.deletes())
	if !whole {
		f.Remedy = fmt.Sprintf("once no program registers them, remove %s from %s, which holds other webhooks too", listed(names), h.configuration)
	}
	return f
}

// orphaned reports whether a webhook calls this program and is not its own. Below the prefixes of this program no other
// handler can answer. Elsewhere the server may have other handlers, of a controller-runtime manager that shares it, so
// it is asked.
func (d *diagnostic) orphaned(ctx context.Context, h hook) bool {
	at, path := h.target()
	if at.String() != d.Options.Target.String() || d.isOurs(h) {
		return false
	}
	below := func(validating bool) bool {
		return strings.HasPrefix(path, d.Canary.Prefix+webhookconf.PathOf(validating, ""))
	}
	return d.Canary.Namespace != "" && (below(false) || below(true)) || d.Listen != "" && d.lacks(ctx, path)
}

// lacks reports whether the server of this process has nothing on the path.
func (d *diagnostic) lacks(ctx context.Context, path string) bool {
	own, _ := d.ownAddress() // that this process listens on
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+own+path, http.NoBody)
	if err != nil {
		return false
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // no data is sent
	response, err := (&http.Client{Transport: transport, Timeout: d.Timeout}).Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusNotFound
}
