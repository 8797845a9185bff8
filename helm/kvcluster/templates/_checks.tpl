{{- /* Mistakes that the schema cannot find, because they concern two values. */ -}}
{{- define "kv.check" -}}
{{- if lt (int .Values.node.count) (int .Values.cluster.replicationFactor) -}}
{{- fail (printf "node.count is %d, fewer than cluster.replicationFactor, %d. Every shard needs that many nodes, so their number cannot be reduced below it." (int .Values.node.count) (int .Values.cluster.replicationFactor)) -}}
{{- end -}}
{{- if and .Values.etcd.enabled .Values.externalEtcd.endpoints -}}
{{- fail "etcd.enabled is true and externalEtcd.endpoints names an etcd too. Set etcd.enabled to false, or remove the endpoints." -}}
{{- end -}}
{{- if not (or .Values.etcd.enabled .Values.externalEtcd.endpoints) -}}
{{- fail "etcd.enabled is false and externalEtcd.endpoints is empty, so there is no coordinator. Set one of them." -}}
{{- end -}}
{{- if and (include "kv.etcdTls" .) (not .Values.etcd.enabled) -}}
{{- fail "etcd.tls is for the release's own etcd, and etcd.enabled is false. Remove etcd.tls.enabled; externalEtcd.tlsSecret has the files for another etcd." -}}
{{- end -}}
{{- $statefulSets := dict "node" (lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-node" (include "kv.fullname" .))) -}}
{{- if .Values.etcd.enabled -}}
{{- $etcd := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-etcd" (include "kv.fullname" .)) -}}
{{- $_ := set $statefulSets "etcd" $etcd -}}
{{- include "kv.checkEtcd" (list . $etcd) -}}
{{- end -}}
{{- range $part, $statefulSet := $statefulSets -}}
{{- include "kv.checkStorage" (list $ $part $statefulSet) -}}
{{- end -}}
{{- if and (not .Values.externalEtcd.endpoints) (or .Values.externalEtcd.tlsSecret .Values.externalEtcd.user .Values.externalEtcd.passwordSecret) -}}
{{- fail "externalEtcd.tlsSecret, user and passwordSecret are for externalEtcd.endpoints, which is empty. Set the endpoints, or remove the others." -}}
{{- end -}}
{{- if and .Values.externalEtcd.clientCertificate (not .Values.externalEtcd.tlsSecret) -}}
{{- fail "externalEtcd.clientCertificate requires externalEtcd.tlsSecret, which has the certificate." -}}
{{- end -}}
{{- range .Values.externalEtcd.endpoints -}}
{{- if and $.Values.externalEtcd.tlsSecret (not (hasPrefix "https://" .)) -}}
{{- fail (printf "externalEtcd.endpoints: '%s' does not begin with https://, but externalEtcd.tlsSecret is set. All endpoints use TLS or none." .) -}}
{{- end -}}
{{- end -}}
{{- if ne (empty .Values.externalEtcd.user) (empty .Values.externalEtcd.passwordSecret) -}}
{{- fail "externalEtcd.user and externalEtcd.passwordSecret require each other. Set both or none." -}}
{{- end -}}
{{- if and (not .Values.tls.certManager.enabled) (ne (empty .Values.tls.nodeSecret) (empty .Values.tls.routerSecret)) -}}
{{- fail "tls.nodeSecret and tls.routerSecret require each other. Set both, or none to have the certificates made." -}}
{{- end -}}
{{- if and (include "kv.tls" .) (not (regexMatch "^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*$" (include "kv.cluster" .))) -}}
{{- fail (printf "cluster.name: '%s' cannot be part of a DNS name, and with TLS the nodes' certificates name the cluster. Set another name, or tls.enabled to false." (include "kv.cluster" .)) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not (include "kv.tls" .)) -}}
{{- fail "tls.certManager.enabled is set without TLS, so certificates would be created and not used. Set tls.enabled too." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled requires the name of an issuer in tls.certManager.issuerRef.name." -}}
{{- end -}}
{{- if and .Values.router.autoscaling.enabled (gt (int .Values.router.autoscaling.min) (int .Values.router.autoscaling.max)) -}}
{{- fail (printf "router.autoscaling.min is %d, greater than router.autoscaling.max, %d." (int .Values.router.autoscaling.min) (int .Values.router.autoscaling.max)) -}}
{{- end -}}
{{- if hasKey .Values.node.settings "stop-grace-seconds" -}}
{{- fail "node.settings.stop-grace-seconds: the chart sets this itself, five seconds less than node.terminationGracePeriodSeconds. Change that value instead." -}}
{{- end -}}
{{- range $part, $values := dict "node" .Values.node "router" .Values.router -}}
{{- range $setting, $_ := $values.settings -}}
{{- if or (has $setting (list "config" "node" "pod-name" "data" "listen" "advertise" "listen-peers" "advertise-peers" "cluster" "coordinator" "bootstrap-nodes" "replicas" "split-at" "nodes" "admin" "admin-token-file" "allow-plaintext" "until-stdin-ends")) (hasPrefix "tls-" $setting) (hasPrefix "coordinator-" $setting) -}}
{{- fail (printf "%s.settings.%s: the chart sets this itself. Remove it, and see values.yaml for the value that it is derived from." $part $setting) -}}
{{- end -}}
{{- end -}}
{{- range $values.env -}}
{{- if hasPrefix "KVCLUSTER_" .name -}}
{{- fail (printf "%s.env: %s would override the settings file. Set %s.settings.%s instead." $part .name $part (.name | trimPrefix "KVCLUSTER_" | lower | replace "_" "-")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $last := "" -}}
{{- range .Values.cluster.splitAt -}}
{{- if le . $last -}}
{{- fail (printf "cluster.splitAt: keys must be in ascending order, but '%s' does not come after '%s'." . $last) -}}
{{- end -}}
{{- $last = . -}}
{{- end -}}
{{- end -}}

{{- /*
  The size of volumes cannot be changed in a StatefulSet, which Kubernetes says as "Forbidden": (list root part statefulset), where the StatefulSet is the one that there is, or
  empty.
*/ -}}
{{- define "kv.checkStorage" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $size := (index $root.Values $part).storage.size -}}
{{- range dig "spec" "volumeClaimTemplates" list (index . 2) -}}
{{- $current := dig "spec" "resources" "requests" "storage" $size . -}}
{{- $growth := subf (include "kv.bytes" $size | float64) (include "kv.bytes" $current | float64) -}}
{{- if gt $growth 0.0 -}}
{{- fail (printf "%s.storage.size is %s, but the volumes have %s. Run `deploy/kubernetes/grow-storage %s %s --namespace %s%s` first, and then this again." $part $size $current $root.Release.Name $size $root.Release.Namespace (ternary " --etcd" "" (eq $part "etcd"))) -}}
{{- else if lt $growth 0.0 -}}
{{- fail (printf "%s.storage.size is %s, but the volumes have %s and cannot shrink. Set %s.storage.size=%s." $part $size $current $part $current) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The members of an etcd keep each other's addresses in their data: (list root statefulset), where the StatefulSet is the one that there is, or empty. */ -}}
{{- define "kv.checkEtcd" -}}
{{- $root := index . 0 -}}
{{- range $container := dig "spec" "template" "spec" "containers" list (index . 1) -}}
{{- range $container.args -}}
{{- if and (hasPrefix "--initial-cluster=" .) (ne (eq "true" (include "kv.etcdTls" $root)) (contains "=https://" .)) -}}
{{- fail (printf "etcd.tls.enabled is %t and was %t when this etcd was created. Its members keep each other's addresses, so it cannot be changed. Set it back." $root.Values.etcd.tls.enabled (not $root.Values.etcd.tls.enabled)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A quantity as a number of bytes, because Kubernetes returns it in another form: 1024Mi as 1Gi. */ -}}
{{- define "kv.bytes" -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .) | float64) | floor -}}
{{- end -}}
