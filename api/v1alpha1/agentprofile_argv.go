package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// Begin is the command of a new conversation; id is what was minted for it,
// empty when the agent makes its own. It depends on its arguments alone. An
// error matches *PresetError.
func (p *AgentProfileSpec) Begin(agent *AgentSpec, id ConversationID) ([]string, error) {
	return p.argv(p.Command, agent, map[string]string{conversationHole: string(id)})
}

// ResumeArgv is the command that goes on with the conversation id. An error
// matches *PresetError.
func (p *AgentProfileSpec) ResumeArgv(agent *AgentSpec, id ConversationID) ([]string, error) {
	return p.argv(p.Resume, agent, map[string]string{conversationHole: string(id)})
}

// ForkArgv is the command that begins a copy of the conversation from; id is
// what was minted for the copy. It is empty for an agent that copies nothing. An
// error matches *PresetError.
func (p *AgentProfileSpec) ForkArgv(agent *AgentSpec, from, id ConversationID) ([]string, error) {
	if len(p.Fork) == 0 {
		return nil, nil
	}
	return p.argv(p.Fork, agent, map[string]string{conversationHole: string(from), newConversationHole: string(id)})
}

// PresetError says that a profile has no such preset.
//
// +kubebuilder:object:generate=false
type PresetError struct {
	Preset ModelPresetName
	Known  []string // empty when the profile takes no preset at all
}

func (e *PresetError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("the profile takes no model preset, and %q is asked for", e.Preset)
	}
	return fmt.Sprintf("the profile has no model preset %q; there are: %s", e.Preset, strings.Join(e.Known, ", "))
}

// The placeholders of an ArgTemplate.
const (
	conversationHole    = "{conversationID}"
	newConversationHole = "{newConversationID}"
	presetHole          = "{modelPreset}"
)

func (p *AgentProfileSpec) argv(template []ArgTemplate, agent *AgentSpec, holes map[string]string) ([]string, error) {
	argv := fill(nil, template, holes)
	if agent.ModelPreset != "" {
		value, err := p.preset(agent.ModelPreset)
		if err != nil {
			return nil, err
		}
		argv = fill(argv, p.ModelPreset.Args, map[string]string{presetHole: value})
	}
	return append(argv, agent.Args...), nil
}

func (p *AgentProfileSpec) preset(name ModelPresetName) (string, error) {
	if p.ModelPreset == nil {
		return "", &PresetError{Preset: name}
	}
	if len(p.ModelPreset.Presets) == 0 {
		return string(name), nil
	}
	var known []string
	for _, m := range p.ModelPreset.Presets {
		if m.Name == name {
			if m.Value != "" {
				return m.Value, nil
			}
			return string(name), nil
		}
		known = append(known, string(m.Name))
	}
	slices.Sort(known)
	return "", &PresetError{Preset: name, Known: known}
}

// fill appends template to argv. A placeholder is all of an argument, or all
// behind its flag and "=", so that what it stands for can become neither a
// second argument nor a part of another.
func fill(argv []string, template []ArgTemplate, holes map[string]string) []string {
	for _, t := range template {
		arg := string(t)
		for hole, value := range holes {
			if flag, ok := strings.CutSuffix(arg, hole); ok && (flag == "" || flag[0] == '-' && strings.IndexByte(flag, '=') == len(flag)-1) {
				arg = flag + value
				break
			}
		}
		argv = append(argv, arg)
	}
	return argv
}
