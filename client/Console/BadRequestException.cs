namespace KvCluster.AdminConsole;

/// <summary>A request of the page is invalid; the message says why.</summary>
internal sealed class BadRequestException(string message) : Exception(message);
