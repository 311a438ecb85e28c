# The operator and its agent are one static binary; `make build` writes it. For people with a container engine:
#   make build && docker build --tag pg-operator:dev .
# Without one, `make image` writes the same image as an archive.
FROM scratch
COPY bin/pg-operator /pg-operator
USER 65532:65532
ENTRYPOINT ["/pg-operator"]
