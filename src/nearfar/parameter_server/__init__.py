"""The protocol of server and workers: plain classes that know no network and can be stepped by hand."""
