{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* How commands and nodes reach the plan. */}}
{{- define "penstock.etcd" -}}
- name: PENSTOCK_ETCD_ENDPOINTS
  value: {{ required "etcd.endpoints: which etcd has the plan?" .Values.etcd.endpoints | quote }}
- name: PENSTOCK_ETCD_PREFIX
  value: {{ .Values.etcd.prefix | quote }}
{{- if .Values.etcd.user }}
- name: PENSTOCK_ETCD_USER
  value: {{ .Values.etcd.user | quote }}
- name: PENSTOCK_ETCD_SECRET_FILE
  value: /etc/penstock/own/etcd-secret
{{- end }}
{{- if .Values.etcd.ca }}
- name: PENSTOCK_ETCD_CA
  value: /etc/penstock/own/etcd-ca.pem
{{- end }}
{{- if .Values.etcd.clientCertificate }}
- name: PENSTOCK_ETCD_CERT
  value: /etc/penstock/own/etcd-client.pem
- name: PENSTOCK_ETCD_KEY
  value: /etc/penstock/own/etcd-client.key
{{- end }}
{{- end }}
