namespace KvCluster.ServiceDefaults.Programs;

/// <summary>Sets how many arrays of each size the runtime's shared pool keeps. HttpClient rents from it for every open call.</summary>
internal static class SharedArrays
{
    private const string Variable = "DOTNET_SYSTEM_BUFFERS_SHAREDARRAYPOOL_MAXARRAYSPERPARTITION";

    /// <summary>
    /// Lets the pool keep 512 arrays per processor instead of 32. If more calls are open than it keeps, each allocates new arrays: 22 KB per call at 256
    /// callers instead of 4. This must be the first statement of a program, because the runtime reads the setting once, from the environment only. An
    /// existing value in the environment is kept.
    /// </summary>
    public static void KeepMany()
    {
        if (Environment.GetEnvironmentVariable(Variable) is null)
            Environment.SetEnvironmentVariable(Variable, "512");
    }
}
