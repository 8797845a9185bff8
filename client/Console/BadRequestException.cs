namespace KvCluster.AdminConsole;

/// <summary>A request of the page's that means nothing; the message says why.</summary>
internal sealed class BadRequestException(string message) : Exception(message);
