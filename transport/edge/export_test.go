package edge

// SaramaConfig lets tests reach brokers as subscribers do.
var SaramaConfig = saramaConfig
