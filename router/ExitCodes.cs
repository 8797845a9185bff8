namespace KvCluster.Router;

/// <summary>What <c>kv-router</c> exits with.</summary>
internal static class ExitCodes
{
    public const int Done = 0;
    public const int Usage = 2;
    public const int Unavailable = 3;
    public const int Internal = 70;
}
