using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>Log messages of the calls. Only bugs are logged.</summary>
internal static partial class ApiLog
{
    [LoggerMessage(30, LogLevel.Error, "A call of {Method} ended with an unexpected exception")]
    public static partial void Unexpected(ILogger log, Method method, Exception failure);

    [LoggerMessage(31, LogLevel.Error, "The replies of an exchange could not be sent because of an unexpected exception; its stream was ended")]
    public static partial void SendingFailed(ILogger log, Exception failure);
}
