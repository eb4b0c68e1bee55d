//go:build ignore

// Command tables writes the tables beside it (shapes.txt, resources.txt) from a Kubernetes release: the published OpenAPI v3
// documents and discovery document (API_DIR, the release's `api` folder) for shapes, merge rules and resources, and Go's own
// view of the types for what is written when a field is empty.
//
//	go run tables.go API_DIR OUT_DIR
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type obj = map[string]any

var served = map[string][]string{}

// Group versions that a release serves without flags.
func wanted(group, version string) bool {
	return version == "v1" || (group == "autoscaling" && version == "v2")
}

var prefixes = [][2]string{
	{"io.k8s.apimachinery.pkg.apis.meta.v1.", "meta.v1."},
	{"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.", "apiextensions.v1."},
	{"io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.", "apiregistration.v1."},
	{"io.k8s.apimachinery.pkg.api.resource.", ""},
	{"io.k8s.apimachinery.pkg.runtime.", ""},
	{"io.k8s.apimachinery.pkg.util.intstr.", ""},
	{"io.k8s.apimachinery.pkg.version.", "version."},
	{"io.k8s.api.", ""},
}

func short(name string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p[0]) {
			return p[1] + strings.TrimPrefix(name, p[0])
		}
	}
	return name
}

func openapiName(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	host := strings.Split(parts[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(host, parts[1:]...), ".") + "." + t.Name()
}

// presence maps "type field" to what Go's encoder does when the field is empty.
var presence = map[string]string{}
var seen = map[reflect.Type]bool{}

func visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		visit(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	fields(openapiName(t), t)
}

func fields(owner string, t reflect.Type) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		opts := strings.Join(tag[1:], ",")
		if f.Anonymous && f.Type.Kind() == reflect.Struct && (tag[0] == "" || strings.Contains(opts, "inline")) {
			fields(owner, f.Type)
			continue
		}
		if tag[0] == "-" || !f.IsExported() {
			continue
		}
		name := tag[0]
		if name == "" {
			name = f.Name
		}
		empty, zero := strings.Contains(opts, "omitempty"), strings.Contains(opts, "omitzero")
		c := "!"
		switch f.Type.Kind() {
		case reflect.Pointer:
			c = "*"
			if !empty && !zero {
				c = "&"
			}
		case reflect.Struct:
			if zero {
				c = "~"
			}
		default:
			if empty || zero {
				c = "?"
			}
		}
		presence[owner+" "+name] = c
		visit(f.Type)
	}
}

func str(o obj, k string) string { s, _ := o[k].(string); return s }

func ref(o obj) string {
	r := str(o, "$ref")
	if all, ok := o["allOf"].([]any); ok && len(all) == 1 {
		r = str(all[0].(obj), "$ref")
	}
	return strings.TrimPrefix(r, "#/components/schemas/")
}

var queue []string
var reached = map[string]bool{}

func reach(n string) {
	if !reached[n] {
		reached[n] = true
		queue = append(queue, n)
	}
}

func typ(o obj) string {
	if r := ref(o); r != "" {
		reach(r)
		return "@" + short(r)
	}
	switch str(o, "type") {
	case "string":
		if str(o, "format") == "byte" {
			return "bytes"
		}
		return "s"
	case "boolean":
		return "b"
	case "integer":
		if str(o, "format") == "int64" {
			return "i64"
		}
		return "i32"
	case "number":
		return "f64"
	case "array":
		return "[]" + typ(o["items"].(obj))
	case "object":
		if a, ok := o["additionalProperties"].(obj); ok {
			return "{}" + typ(a)
		}
		return "{}any"
	}
	return "any"
}

func attrs(o obj) string {
	out := ""
	if v := str(o, "x-kubernetes-list-type"); v != "" {
		out += " list=" + v
		if v == "map" {
			keys := []string{}
			for _, k := range o["x-kubernetes-list-map-keys"].([]any) {
				keys = append(keys, k.(string))
			}
			out += ":" + strings.Join(keys, ",")
		}
	}
	if v := str(o, "x-kubernetes-map-type"); v != "" {
		out += " map=" + v
	}
	if v := str(o, "x-kubernetes-patch-strategy"); v != "" {
		out += " patch=" + v
		if k := str(o, "x-kubernetes-patch-merge-key"); k != "" {
			out += "/" + k
		}
	}
	return out
}

func main() {
	apiDir, outDir := os.Args[1], os.Args[2]
	apiext.AddToScheme(scheme.Scheme)
	apireg.AddToScheme(scheme.Scheme)
	for _, t := range scheme.Scheme.AllKnownTypes() {
		visit(t)
	}
	for _, v := range []any{metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, runtime.RawExtension{}} {
		visit(reflect.TypeOf(v))
	}
	defs := map[string]obj{}
	files, _ := filepath.Glob(filepath.Join(apiDir, "openapi-spec/v3/*.json"))
	for _, f := range files {
		var doc struct {
			Components struct{ Schemas map[string]obj }
		}
		b, err := os.ReadFile(f)
		check(err)
		check(json.Unmarshal(b, &doc))
		for n, d := range doc.Components.Schemas {
			defs[n] = d
		}
	}
	gvks := func(d obj) [][3]string {
		out := [][3]string{}
		l, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, x := range l {
			o := x.(obj)
			out = append(out, [3]string{str(o, "group"), str(o, "version"), str(o, "kind")})
		}
		return out
	}
	for n, d := range defs {
		for _, g := range gvks(d) {
			if wanted(g[0], g[1]) {
				reach(n)
			}
		}
	}
	for _, n := range []string{"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status", "DeleteOptions", "WatchEvent"} {
		reach("io.k8s.apimachinery.pkg.apis.meta.v1." + n)
	}
	sort.Strings(queue)
	lines := map[string]string{}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		d, ok := defs[n]
		if !ok {
			panic("no definition " + n)
		}
		b := &strings.Builder{}
		fmt.Fprintf(b, "%s", short(n))
		if str(d, "type") == "object" && d["properties"] == nil {
			fmt.Fprintf(b, " free")
		}
		if g := gvks(d); len(g) == 1 {
			fmt.Fprintf(b, " gvk=%s/%s/%s", g[0][0], g[0][1], g[0][2])
		}
		fmt.Fprintf(b, "%s\n", attrs(d))
		props, _ := d["properties"].(obj)
		req := map[string]bool{}
		if r, ok := d["required"].([]any); ok {
			for _, x := range r {
				req[x.(string)] = true
			}
		}
		names := []string{}
		for p := range props {
			names = append(names, p)
		}
		sort.Strings(names)
		for _, p := range names {
			o := props[p].(obj)
			c := presence[n+" "+p]
			if c == "" {
				c = "?"
				fmt.Fprintln(os.Stderr, "unknown to Go:", n, p)
			}
			fmt.Fprintf(b, " %s %s %s%s", p, c, typ(o), attrs(o))
			if req[p] {
				fmt.Fprintf(b, " req")
			}
			if v, ok := o["default"]; ok {
				j, _ := json.Marshal(v)
				if s := string(j); s != "{}" && s != `""` && s != "0" && s != "false" {
					fmt.Fprintf(b, " default=%s", s)
				}
			}
			fmt.Fprintln(b)
		}
		lines[short(n)] = b.String()
	}
	keys := []string{}
	for k := range lines {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := &strings.Builder{}
	fmt.Fprintln(out, "# Shapes of the built-in kinds; written by tables.go, read by ../table.rs (format there).")
	for _, k := range keys {
		out.WriteString(lines[k])
	}
	check(os.WriteFile(filepath.Join(outDir, "shapes.txt"), []byte(out.String()), 0o644))

	// resources
	var disc struct {
		Items []struct {
			Metadata obj
			Versions []struct {
				Version   string
				Resources []obj
			}
		}
	}
	core := struct{ Resources []obj }{}
	b, err := os.ReadFile(filepath.Join(apiDir, "discovery/api__v1.json"))
	check(err)
	check(json.Unmarshal(b, &core))
	b, err = os.ReadFile(filepath.Join(apiDir, "discovery/aggregated_v2.json"))
	check(err)
	check(json.Unmarshal(b, &disc))
	out = &strings.Builder{}
	fmt.Fprintln(out, "# Built-in resources; written by tables.go, read by ../catalog.rs (format there).")
	strs := func(v any) string {
		l, _ := v.([]any)
		s := []string{}
		for _, x := range l {
			s = append(s, x.(string))
		}
		if len(s) == 0 {
			return "-"
		}
		return strings.Join(s, ",")
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	fmt.Fprintln(out, "/v1")
	subs := map[string][]obj{}
	for _, r := range core.Resources {
		if n := str(r, "name"); strings.Contains(n, "/") {
			p := strings.SplitN(n, "/", 2)
			subs[p[0]] = append(subs[p[0]], r)
		}
	}
	for _, r := range core.Resources {
		n := str(r, "name")
		if strings.Contains(n, "/") {
			continue
		}
		scope := "cluster"
		if r["namespaced"].(bool) {
			scope = "namespaced"
		}
		fmt.Fprintf(out, " %s %s %s %s %s %s %s\n", n, str(r, "singularName"), str(r, "kind"), scope, strs(r["verbs"]), strs(r["shortNames"]), strs(r["categories"]))
		for _, s := range subs[n] {
			g, v := str(s, "group"), str(s, "version")
			if v == "" {
				v = "v1"
			}
			fmt.Fprintf(out, "  %s %s %s %s %s\n", strings.SplitN(str(s, "name"), "/", 2)[1], dash(g), v, str(s, "kind"), strs(s["verbs"]))
		}
	}
	for _, g := range disc.Items {
		group := str(g.Metadata, "name")
		for _, v := range g.Versions {
			if !wanted(group, v.Version) {
				continue
			}
			fmt.Fprintf(out, "%s/%s\n", group, v.Version)
			for _, r := range v.Resources {
				k := r["responseKind"].(obj)
				fmt.Fprintf(out, " %s %s %s %s %s %s %s\n", str(r, "resource"), str(r, "singularResource"), str(k, "kind"), strings.ToLower(str(r, "scope")), strs(r["verbs"]), strs(r["shortNames"]), strs(r["categories"]))
				l, _ := r["subresources"].([]any)
				for _, x := range l {
					s := x.(obj)
					k := s["responseKind"].(obj)
					sg, sv := str(k, "group"), str(k, "version")
					if sv == "" {
						sg, sv = group, v.Version
					}
					fmt.Fprintf(out, "  %s %s %s %s %s\n", str(s, "subresource"), dash(sg), sv, str(k, "kind"), strs(s["verbs"]))
				}
			}
		}
	}
	check(os.WriteFile(filepath.Join(outDir, "resources.txt"), []byte(out.String()), 0o644))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
