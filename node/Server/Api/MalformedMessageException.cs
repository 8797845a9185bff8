namespace KvCluster.Node.Api;

/// <summary>The bytes of a request are not an encoded message.</summary>
internal sealed class MalformedMessageException() : Exception("The request is not an encoded message.");
