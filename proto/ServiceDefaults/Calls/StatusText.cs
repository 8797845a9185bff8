using System.Globalization;
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Status codes as header values.</summary>
internal static class StatusText
{
    private static readonly string[] Texts = [.. Enum.GetValues<StatusCode>().Select(code => ((int)code).ToString(CultureInfo.InvariantCulture))];

    public static string Of(StatusCode code) =>
        (uint)code < (uint)Texts.Length ? Texts[(int)code] : ((int)code).ToString(CultureInfo.InvariantCulture);
}
